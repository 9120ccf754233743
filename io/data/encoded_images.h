// SPDX-License-Identifier: Apache-2.0
//
// Labelled images as encoded bytes (JPEG or PNG), by index: what lies between files and the data set that decodes them.
// Invariant: read() may be called from several threads at once; everything else is known when the object has been made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

class BytePacker;

class EncodedImages {
 public:
  virtual ~EncodedImages() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::int64_t label(std::int64_t index) const = 0;
  /// 1 + the largest label.
  [[nodiscard]] virtual std::int64_t classes() const = 0;
  /// Empty when the source names none.
  [[nodiscard]] virtual std::vector<std::string> class_names() const = 0;
  /// Throws an Error of bad input unless every label is below `classes`.
  virtual void check_labels(std::int64_t classes) const = 0;
  /// Of one image, for messages: a path, or a data set and a number.
  [[nodiscard]] virtual std::string name(std::int64_t index) const = 0;
  /// As Dataset::pack().
  virtual void pack(BytePacker& packer) const { static_cast<void>(packer); }
  /// Replaces `bytes`, whose memory is used again. An Error says what is wrong without the name.
  virtual void read(std::int64_t index, std::vector<std::byte>& bytes) const = 0;
};

}  // namespace convoy
