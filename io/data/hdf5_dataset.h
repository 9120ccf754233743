// SPDX-License-Identifier: Apache-2.0
//
// Samples of an HDF5 data file (docs/interface.md): /images or /inputs with /labels or /targets, at the
// root or in a group. Images of uint8 stay so; those of uint16 become float32 value / 65535, as torchvision's
// convert_image_dtype does, and floats stay as they are. Relies on hdf5.h to open, and on pread() for elements that lie
// in the file as they are, so that loader threads do not wait for HDF5's lock. Invariant: shapes, types and labels have
// been checked before the first read().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/data/dataset.h"
#include "io/hdf5/hdf5_source.h"
#include "io/hdf5/sample_checksums.h"
#include "io/images/row_source.h"

namespace convoy {

class ByteUnpacker;

class Hdf5Dataset : public Dataset {
 public:
  /// source: "file.h5", or "file.h5:/group". signals: inputs [N, C, L] are images [C, 1, L], not vectors. verify: each
  /// image that is read must have its checksum (sample_checksums.h). labelled: there must be labels or targets.
  explicit Hdf5Dataset(const std::string& source, bool signals = false, bool verify = false, bool labelled = true);

  /// From pack(). source: as there, but the file may lie in another folder.
  Hdf5Dataset(const std::string& source, ByteUnpacker& packed);
  void pack(BytePacker& packer) const override;

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] Shape sample_shape() const override { return sample_shape_; }
  [[nodiscard]] DType input_dtype() const override { return inputs_->dtype(); }
  [[nodiscard]] std::int64_t target_size() const override { return target_size_; }
  [[nodiscard]] std::int64_t classes() const override { return labels_ ? labels_->classes() : 0; }
  [[nodiscard]] std::vector<std::string> class_names() const override {
    return labels_ ? labels_->class_names() : std::vector<std::string>();
  }
  /// Throws an Error of bad input that names the file, the first bad sample and its label.
  void check_labels(std::int64_t classes) const override;
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  void verify(std::int64_t index, const void* input) const;
  void open_inputs(const hdf5::File& file, const std::string& name, bool signals);
  void read_target(std::int64_t index, float* target) const;
  void open_targets(const hdf5::File& file, const std::string& name);

  Hdf5Source source_;
  std::int64_t size_ = 0;
  Shape sample_shape_;
  bool planar_ = false;  // inputs lie as [C, H, W] in the file
  bool uint16_ = false;  // in the file
  std::unique_ptr<RowSource> inputs_;
  std::unique_ptr<RowSource> targets_;  // null with labels
  std::int64_t target_size_ = 0;
  std::optional<Hdf5Labels> labels_;          // empty with targets
  std::optional<SampleChecksums> checksums_;  // empty: not verified
};

}  // namespace convoy
