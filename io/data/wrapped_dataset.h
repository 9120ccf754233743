// SPDX-License-Identifier: Apache-2.0
//
// The base of datasets that change what another one reads. Invariant: what a derived class does not override is the
// other's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/data/dataset.h"

namespace convoy {

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
