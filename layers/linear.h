// SPDX-License-Identifier: Apache-2.0
//
// y = x W^T + b, optionally max(0, y) in the same pass. Parameters weight [out, in] and bias [out]. As the sharded head
// of a model (BuildContext::head) it has some of the outputs, of the inputs of all replicas: partial FC (An et al.
// 2021).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "layers/base/options.h"
#include "layers/layer.h"

namespace convoy {

class Linear final : public Layer {
 public:
  Linear(std::int64_t out_features, bool bias, bool relu) : out_(out_features), has_bias_(bias), relu_(relu) {}
  /// input [N, in] -> [N, out]. Initialised as torch.nn.Linear: U(-1/sqrt(in), 1/sqrt(in)).
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return {input[0], out_}; }
  /// A sharded head gives the outputs of its shard for the rows of all replicas: see HeadExchange.
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  Tensor backward_input(const Tensor& dy, Cache& cache) override;
  void backward_weight(Cache& cache) override;

 private:
  std::int64_t out_, in_ = 0;
  std::int64_t columns_ = 0;  // of the output that are here
  bool has_bias_, relu_;
  HeadExchange* head_ = nullptr;  // null: not divided
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

struct LinearOptions {
  static constexpr std::string_view kName = "linear";
  std::int64_t out_features = 0;
  bool bias = true;

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("out_features", o.out_features, between(1, 1e7).required(), "length of the output");
    v.key("bias", o.bias, anything(), "whether a bias is added");
  }
  [[nodiscard]] std::unique_ptr<Layer> make(bool relu_follows) const {
    return std::make_unique<Linear>(out_features, bias, relu_follows);
  }
  bool operator==(const LinearOptions&) const = default;
};

}  // namespace convoy
