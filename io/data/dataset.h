// SPDX-License-Identifier: Apache-2.0
//
// A source of samples by index. read() may be called from several threads at once. Errors name the file and the sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/augment/sample_random.h"
#include "layers/base/error.h"
#include "layers/base/shape.h"

namespace convoy {

class BrokenFiles;
class BytePacker;

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// [C, H, W] or [F]: the shape of one sample without the batch axis; where it depends on the epoch, the largest.
  [[nodiscard]] virtual Shape sample_shape() const = 0;
  /// That of the samples of one epoch.
  [[nodiscard]] virtual Shape sample_shape_in(std::int64_t epoch) const {
    static_cast<void>(epoch);
    return sample_shape();
  }
  /// kU8 for images (channels-last in memory), kF32 for inputs as the network takes them (channels-last too).
  [[nodiscard]] virtual DType input_dtype() const = 0;
  /// 0: samples carry class labels; else the length of each float32 target.
  [[nodiscard]] virtual std::int64_t target_size() const = 0;
  /// 1 + the largest label; 0 for regression.
  [[nodiscard]] virtual std::int64_t classes() const = 0;
  /// Empty when the source names none.
  [[nodiscard]] virtual std::vector<std::string> class_names() const = 0;
  /// Throws an Error of bad input unless every label is below `classes`. Sources that know more name the sample.
  virtual void check_labels(std::int64_t classes) const {
    if (this->classes() > classes)
      fail_usage("labels reach {}, but there are {} classes", this->classes() - 1, classes);
  }
  /// Where samples that could not be decoded are noted; null where there is nothing to decode.
  [[nodiscard]] virtual BrokenFiles* broken() const { return nullptr; }
  /// Adds what other processes need to make the same data set without a look at its files (datasets.h); nothing where
  /// there are none.
  virtual void pack(BytePacker& packer) const { static_cast<void>(packer); }
  /// Writes the sample to `input` (sample_shape_in(sample.epoch).size() elements of input_dtype()), and its label to
  /// `*label` or its target to `target` (target_size() floats). What is not wanted, or does not apply, is null. A pure
  /// function of the data and `sample`: not of the caller, its thread, or what was read before.
  virtual void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const = 0;
};

/// The base of datasets that change what another one reads: what a derived class does not override is the other's.
class WrappedDataset : public Dataset {
 public:
  explicit WrappedDataset(std::unique_ptr<Dataset> data) : data_(std::move(data)) {}

  [[nodiscard]] std::int64_t size() const override { return data_->size(); }
  [[nodiscard]] Shape sample_shape() const override { return data_->sample_shape(); }
  [[nodiscard]] Shape sample_shape_in(std::int64_t epoch) const override { return data_->sample_shape_in(epoch); }
  [[nodiscard]] DType input_dtype() const override { return data_->input_dtype(); }
  [[nodiscard]] std::int64_t target_size() const override { return data_->target_size(); }
  [[nodiscard]] std::int64_t classes() const override { return data_->classes(); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return data_->class_names(); }
  void check_labels(std::int64_t classes) const override { data_->check_labels(classes); }
  [[nodiscard]] BrokenFiles* broken() const override { return data_->broken(); }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override {
    data_->read(sample, input, label, target);
  }

 protected:
  [[nodiscard]] const Dataset& data() const { return *data_; }

 private:
  std::unique_ptr<Dataset> data_;
};

}  // namespace convoy
