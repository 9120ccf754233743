// SPDX-License-Identifier: Apache-2.0
//
// Shared by all data sets in HDF5 files: parsing of "file.h5:/group", and labels with their checks. Relies on hdf5.h.
// Invariant: an error names the file and the data set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5/hdf5.h"

namespace convoy {

class BytePacker;
class ByteUnpacker;

/// A group of an HDF5 file.
struct Hdf5Source {
  std::string path;
  std::string group;  ///< "" for the root, else "/train"

  /// `written`: "file.h5" or "file.h5:/group".
  explicit Hdf5Source(const std::string& written);
  /// From pack(), without a look at the files. `written` may be in another folder than there.
  Hdf5Source(const std::string& written, ByteUnpacker& packed);
  void pack(BytePacker& packer) const;
  /// The group, or a data set in it, for messages: "file.h5:/train/labels".
  [[nodiscard]] std::string name_of(const std::string& dataset = "") const;

 private:
  std::size_t behind_ = 0;  // characters behind the path in what was written
};

/// Class labels, read at once: they are small and must be checked.
class Hdf5Labels {
 public:
  /// Reads `labels` of the group. Throws an Error unless they are `size` integers of at least 0.
  Hdf5Labels(const hdf5::File& file, const Hdf5Source& source, std::int64_t size);
  /// From pack().
  Hdf5Labels(const Hdf5Source& source, ByteUnpacker& packed);
  void pack(BytePacker& packer) const;

  [[nodiscard]] const std::vector<std::int64_t>& values() const { return values_; }
  [[nodiscard]] std::int64_t operator[](std::int64_t sample) const { return values_[static_cast<std::size_t>(sample)]; }
  /// 1 + the largest label.
  [[nodiscard]] std::int64_t classes() const { return classes_; }
  /// The attribute class_names of the group or of the labels; empty when there is none.
  [[nodiscard]] const std::vector<std::string>& class_names() const { return class_names_; }
  /// Throws a usage Error that names the file, the first bad sample and its label.
  void check(std::int64_t classes) const;

 private:
  std::string place_;
  std::vector<std::int64_t> values_;
  std::int64_t classes_ = 0;
  std::vector<std::string> class_names_;
};

}  // namespace convoy
