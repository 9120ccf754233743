// SPDX-License-Identifier: Apache-2.0
//
// Samples out of nothing, for benchmarks and tests: uint8 images or float32 vectors with random labels or targets.
// Relies on the counter-based random numbers of layers/base. Invariant: a sample is a pure function of (seed, index)
// and its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/dataset.h"
#include "io/data/image_sizes.h"

namespace convoy {

class SyntheticDataset : public Dataset {
 public:
  /// sample_shape: [C, H, W] for uint8 images, [F] for float32 values in [-1, 1). target_size 0: labels in
  /// [0, classes); else that many float32 targets in [-1, 1) a sample, and `classes` is not looked at. sizes: of images
  /// whose height and width change from epoch to epoch; sample_shape has the largest.
  SyntheticDataset(std::int64_t samples, const Shape& sample_shape, std::int64_t classes, std::int64_t target_size,
                   std::uint64_t seed, std::optional<ImageSizes> sizes = {});

  [[nodiscard]] std::int64_t size() const override { return samples_; }
  [[nodiscard]] Shape sample_shape() const override { return sample_shape_; }
  [[nodiscard]] Shape sample_shape_in(std::int64_t epoch) const override;
  [[nodiscard]] DType input_dtype() const override { return sample_shape_.rank() == 3 ? DType::kU8 : DType::kF32; }
  [[nodiscard]] std::int64_t target_size() const override { return target_size_; }
  [[nodiscard]] std::int64_t classes() const override { return target_size_ > 0 ? 0 : classes_; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  std::int64_t samples_;
  Shape sample_shape_;
  std::int64_t classes_;
  std::int64_t target_size_;
  std::uint64_t key_;
  std::optional<ImageSizes> sizes_;
};

}  // namespace convoy
