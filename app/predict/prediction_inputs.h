// SPDX-License-Identifier: Apache-2.0
//
// The inputs of `convoy predict` as one data set without labels: image files, folders of images and HDF5 data files,
// one after the other, with the preprocessing of evaluation. Relies on the readers of io/data. Invariant: a broken
// image is an error; no other one takes its place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/config/config.h"
#include "io/data/dataset.h"

namespace convoy {

/// The inputs as single sources: images and HDF5 sources (FILE, FILE:/GROUP, shards "OUT-*.h5") as they are, a folder
/// as the JPEGs and PNGs at any depth below it, sorted by path. Throws a usage Error for what is not there, a folder
/// without images or with images of other formats, and a file that is neither JPEG, PNG nor HDF5.
[[nodiscard]] std::vector<std::string> find_prediction_inputs(const std::vector<std::string>& inputs);

/// Whether this source of find_prediction_inputs() is HDF5.
[[nodiscard]] bool is_hdf5_input(const std::string& source);

class ByteUnpacker;

class PredictionInputs final : public Dataset {
 public:
  /// sources: of find_prediction_inputs(). train: the training data as evaluation reads it; samples get its shape.
  /// Throws a usage Error that names the source if its samples cannot be like those. packer: gets what other processes
  /// need to open the same inputs; may be null. packed: has it, so that no file is looked at before a sample is read;
  /// or null.
  PredictionInputs(const std::vector<std::string>& sources, const Config& config, const Dataset& train,
                   BytePacker* packer, ByteUnpacker* packed);

  /// Of a sample: the path of an image, or "FILE.h5:/GROUP[12]".
  [[nodiscard]] std::string name(std::int64_t index) const;

  [[nodiscard]] std::int64_t size() const override { return parts_.empty() ? 0 : parts_.back().end; }
  [[nodiscard]] Shape sample_shape() const override { return shape_; }
  [[nodiscard]] DType input_dtype() const override { return dtype_; }
  [[nodiscard]] std::int64_t target_size() const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return 0; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
  /// There is neither a label nor a target.
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  struct Part {
    std::unique_ptr<Dataset> data;
    std::function<std::string(std::int64_t index)> name;  ///< of a sample of `data`
    std::int64_t end = 0;                                 ///< in samples of all parts
  };
  void add(std::unique_ptr<Dataset> data, std::function<std::string(std::int64_t)> name);
  [[nodiscard]] std::pair<const Part*, std::int64_t> find(std::int64_t index) const;

  Shape shape_;
  DType dtype_;
  std::vector<Part> parts_;
};

}  // namespace convoy
