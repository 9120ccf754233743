// SPDX-License-Identifier: Apache-2.0
//
// Encoded images of an HDF5 data file (docs/interface.md): jpeg/bytes, one file after the other, jpeg/offsets and
// labels. The group is called jpeg whatever the files are: PNGs are told apart by how their bytes start.
// Relies on row_source.h to read without HDF5's lock where the storage allows. Invariant: offsets and labels have been
// checked before the first read().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/encoded_images.h"
#include "io/hdf5/hdf5_source.h"
#include "io/hdf5/sample_checksums.h"
#include "io/images/row_source.h"

namespace convoy {

class ByteUnpacker;

class Hdf5Jpegs final : public EncodedImages {
 public:
  /// source: "file.h5", or "file.h5:/group". verify: each image that is read must have its checksum
  /// (sample_checksums.h). labelled: there must be labels. Throws an Error of bad input that names the file and the
  /// data set.
  explicit Hdf5Jpegs(const std::string& source, bool verify = false, bool labelled = true);

  /// From pack(). source: as there, but the file may lie in another folder.
  Hdf5Jpegs(const std::string& source, ByteUnpacker& packed);
  void pack(BytePacker& packer) const override;

  /// Whether there is such a file with such a group that holds encoded images.
  [[nodiscard]] static bool are_in(const std::string& source);

  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  [[nodiscard]] std::int64_t label(std::int64_t index) const override { return labels_ ? (*labels_)[index] : 0; }
  [[nodiscard]] std::int64_t classes() const override { return labels_ ? labels_->classes() : 0; }
  [[nodiscard]] std::vector<std::string> class_names() const override {
    return labels_ ? labels_->class_names() : std::vector<std::string>();
  }
  void check_labels(std::int64_t classes) const override {
    if (labels_) labels_->check(classes);
  }
  [[nodiscard]] std::string name(std::int64_t index) const override;
  void read(std::int64_t index, std::vector<std::byte>& bytes) const override;

 private:
  void open_offsets(const hdf5::File& file, std::int64_t bytes);

  Hdf5Source source_;
  std::unique_ptr<RowSource> bytes_;
  std::vector<std::int64_t> offsets_;           // [images + 1]
  std::unique_ptr<Hdf5Labels> labels_;          // null: there are none
  std::unique_ptr<SampleChecksums> checksums_;  // null: not verified
};

}  // namespace convoy
