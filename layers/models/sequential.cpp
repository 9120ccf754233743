// SPDX-License-Identifier: Apache-2.0
//
// Sequential models, layer by layer as in the config.
#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "layers/models/models.h"

namespace convoy {

namespace {

/// Layers that take the ReLU after them into their own pass.
template <class Options>
constexpr bool kFusesRelu = requires(const Options& options) {
  options.make(true);
};

bool is_relu(const LayerOptions& layer) { return std::holds_alternative<ReluOptions>(layer.layer); }

bool fuses_relu(const LayerOptions& layer) {
  return std::visit([]<class Options>(const Options&) { return kFusesRelu<Options>; }, layer.layer);
}

std::unique_ptr<Layer> make_layer(const LayerChoice& choice, bool relu_follows) {
  return std::visit(
      [&]<class Options>(const Options& options) {
        if constexpr (kFusesRelu<Options>) {
          return options.make(relu_follows);
        } else {
          return options.make();
        }
      },
      choice);
}

}  // namespace

std::vector<Unit> sequential_model(const std::vector<LayerOptions>& layers) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerOptions& layer = layers[i];
    const bool fuse = fuses_relu(layer) && i + 1 < layers.size() && is_relu(layers[i + 1]);
    units.push_back({layer.name, layer.name, make_layer(layer.layer, fuse)});
    if (fuse) ++i;
  }
  return units;
}

}  // namespace convoy
