// SPDX-License-Identifier: Apache-2.0
//
// What can be packed, whatever reader it takes: encoded images or images of one size, by index, with labels. Relies on
// the readers of this folder. Invariant: read() may be called from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset.h"
#include "io/data/encoded_images.h"
#include "io/pack/pixel_statistics.h"

namespace convoy {

enum class PackKind { kImageFolder, kIdx, kCifar10, kHdf5 };

/// "image_folder", ...: as data.kind.
[[nodiscard]] std::optional<PackKind> pack_kind(std::string_view name);
/// Tells it by what is there. Throws an Error of bad input when there is nothing, or nothing that is known; `remedy` is
/// what to do about a file of no known kind.
[[nodiscard]] PackKind detect_pack_kind(const std::string& path, std::string_view remedy);

class PackSource {
 public:
  /// Throws the reader's Error of bad input.
  PackSource(const std::string& path, PackKind kind);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  /// Samples from here on are the source's own validation (test) part; size() when it has none.
  [[nodiscard]] std::int64_t first_held_out() const { return first_held_out_; }
  [[nodiscard]] std::int64_t label(std::int64_t index) const { return labels_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::int64_t classes() const { return classes_; }
  [[nodiscard]] const std::vector<std::string>& class_names() const { return class_names_; }
  [[nodiscard]] std::string name(std::int64_t index) const;
  [[nodiscard]] bool encoded() const { return images_ != nullptr; }
  /// [H, W, C] of images of one size; empty for encoded ones.
  [[nodiscard]] const std::vector<std::int64_t>& image() const { return image_; }
  /// Of these.
  [[nodiscard]] PixelType type() const { return type_; }
  /// Replaces `bytes` by an encoded image, or by the pixels [H, W, C]. An Error says what is wrong without the name.
  void read(std::int64_t index, std::vector<std::byte>& bytes) const;
  /// A number that changes when names, sizes, times or labels of the source do (or the pixels, of small files).
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }
  /// Of all samples as they are, about.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void open_encoded(PackKind kind);
  void open_fixed(PackKind kind);
  void take_fingerprint(PackKind kind);

  std::string path_;
  std::unique_ptr<EncodedImages> images_, held_out_images_;
  std::unique_ptr<Dataset> data_, held_out_;  // instead of images_
  std::int64_t first_held_out_ = 0, classes_ = 0, bytes_ = 0;
  std::vector<std::string> class_names_;
  std::vector<std::int64_t> image_, labels_;
  PixelType type_ = PixelType::kUint8;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace convoy
