// SPDX-License-Identifier: Apache-2.0
//
// Float samples (inputs, targets, or both) checked and normalised: an infinite value or NaN is an error that names the
// sample, and inputs become (x - mean) / std. Invariant: a sample is a pure function of (data, options, index).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/broken_files.h"
#include "io/data/dataset.h"

namespace convoy {

class FloatDataset final : public WrappedDataset {
 public:
  struct Options {
    std::string source;                ///< for messages
    std::vector<double> mean = {0.0};  ///< of inputs: one for all, or one per channel of [C, H, W], per feature of [F]
    std::vector<double> std = {1.0};
    bool allow_nonfinite = false;  ///< values that are not finite are reported and used as they are
  };
  /// Throws an OptionError unless mean and std have one value or as many as channels or features.
  FloatDataset(std::unique_ptr<Dataset> data, Options options);

  /// Samples with values that are not finite, where they are allowed: the first ones.
  [[nodiscard]] BrokenFiles* broken() const override { return &nonfinite_; }
  /// Throws an Error of bad input that names the sample and the first of its values that is not finite.
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  void check(std::int64_t index, const char* what, const float* values, std::int64_t count) const;

  const Options options_;
  const bool float_inputs_;
  std::vector<float> mean_, std_;  // of each channel or feature; empty: as they are
  mutable BrokenFiles nonfinite_;
};

}  // namespace convoy
