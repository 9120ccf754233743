// SPDX-License-Identifier: Apache-2.0
//
// Dropout (Srivastava et al. 2014; torch.nn.Dropout): in training each element is set to zero with a given probability,
// and otherwise divided by the probability of being kept. The mask is a pure function of the run's seed, the layer, the
// update, the sample's position in the epoch and the element, so that resumed runs and all parallel modes drop the same
// elements. The backward recomputes the mask: nothing is stored. In evaluation the layer is the identity. No
// parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "layers/base/options.h"
#include "layers/layer.h"

namespace convoy {

class Dropout final : public Layer {
 public:
  /// probability: from 0 to below 1.
  explicit Dropout(double probability) : probability_(probability) {}
  /// Any shape, unchanged.
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;

 private:
  [[nodiscard]] Tensor apply(const Tensor& x, const Cache& cache) const;

  double probability_;
  std::uint64_t key_ = 0;
};

struct DropoutOptions {
  static constexpr std::string_view kName = "dropout";
  double probability = 0.5;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("probability", o.probability, below(0, 1), "of an element to be zero in training");
  }
  [[nodiscard]] std::unique_ptr<Layer> make() const { return std::make_unique<Dropout>(probability); }
  bool operator==(const DropoutOptions&) const = default;
};

}  // namespace convoy
