// SPDX-License-Identifier: Apache-2.0
//
// y = x + f(x) for layers f that keep the shape of their input, without an activation behind the sum.
#pragma once

#include <string>

#include "layers/sequence.h"

namespace convoy {

class SkipConnection final : public Layer {
 public:
  explicit SkipConnection(Sequence layers) : layers_(std::move(layers)) {}
  /// Throws a usage Error if the layers change the shape.
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return layers_.output_shape(input); }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override { layers_.backward_weight(cache); }
  Tensor backward(const Tensor& dy, Cache& cache) override;
  [[nodiscard]] bool is_composite() const override { return true; }
  void skip_input_gradient() override;

 private:
  /// sum + other, in the memory of `sum` if nobody else holds it.
  [[nodiscard]] Tensor add(Tensor sum, const Tensor& other) const;

  Sequence layers_;
};

}  // namespace convoy
