// SPDX-License-Identifier: Apache-2.0
//
// Layers one after the other. Child i is built under its own name below the sequence's path.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/layer.h"

namespace convoy {

class Sequence final : public Layer {
 public:
  /// Appends a layer; returns *this for chaining.
  Sequence& add(std::string name, std::unique_ptr<Layer> layer);

  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override;
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override;
  Tensor backward(const Tensor& dy, Cache& cache) override;
  [[nodiscard]] std::int64_t input_channels(std::int64_t channels) const override {
    return layers_.empty() ? channels : layers_.front().second->input_channels(channels);
  }
  [[nodiscard]] bool is_composite() const override { return layers_.size() > 1; }
  [[nodiscard]] BatchNorm2d* output_norm() override {
    return layers_.empty() ? nullptr : layers_.back().second->output_norm();
  }
  void set_input_norm(BatchNorm2d* norm) override {
    if (!layers_.empty()) layers_.front().second->set_input_norm(norm);
  }
  /// The layers below the first one with parameters take no part in backward then.
  void skip_input_gradient() override;

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Layer>>> layers_;
  std::size_t first_learning_ = 0;  // the first with parameters, once built
  std::size_t lowest_ = 0;          // where backward ends
};

}  // namespace convoy
