// SPDX-License-Identifier: Apache-2.0
//
// Networks written out in the config, layer by layer.
#include "layers/base/error.h"
#include "layers/linear.h"
#include "layers/models/models.h"
#include "layers/pooling.h"
#include "layers/relu.h"
#include "layers/residual.h"

namespace convoy {

namespace {

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, bool relu_follows) {
  using Kind = ResidualBlock::Kind;
  if (spec.type == "linear") return std::make_unique<Linear>(spec.outputs, spec.bias, relu_follows);
  if (spec.type == "relu") return std::make_unique<Relu>();
  if (spec.type == "conv2d") {
    return std::make_unique<Conv2d>(Conv2dSpec{0, spec.outputs, spec.kernel, spec.stride, spec.padding}, spec.bias);
  }
  if (spec.type == "batch_norm2d") return std::make_unique<BatchNorm2d>(relu_follows);
  if (spec.type == "max_pool2d") return std::make_unique<MaxPool2d>(PoolSpec{spec.kernel, spec.stride, spec.padding});
  if (spec.type == "global_avg_pool") return std::make_unique<GlobalAvgPool>();
  if (spec.type == "flatten") return std::make_unique<Flatten>();
  if (spec.type == "basic_block") return std::make_unique<ResidualBlock>(Kind::kBasic, spec.outputs, spec.stride);
  if (spec.type == "bottleneck") return std::make_unique<ResidualBlock>(Kind::kBottleneck, spec.outputs, spec.stride);
  fail_usage("model.layers: no layer type \"{}\"", spec.type);
}

}  // namespace

std::vector<Unit> sequential_model(const std::vector<LayerSpec>& layers) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& spec = layers[i];
    const bool fusible = spec.type == "batch_norm2d" || spec.type == "linear";
    const bool fuse = fusible && i + 1 < layers.size() && layers[i + 1].type == "relu";
    units.push_back({spec.name, spec.name, make_layer(spec, fuse)});
    if (fuse) ++i;
  }
  return units;
}

}  // namespace convoy
