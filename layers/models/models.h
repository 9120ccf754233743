// SPDX-License-Identifier: Apache-2.0
//
// The networks that model.name chooses, as lists of units. Parameter names and shapes are torchvision's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/model.h"

namespace convoy {

/// Linear 10 -> 10 (net1), ReLU, Linear 10 -> outputs (net2): the network of PyTorch's DDP tutorial (outputs 5).
std::vector<Unit> toy_model(std::int64_t outputs);

/// Flatten, then Linear + ReLU for each hidden size (fc1, fc2, ...), then Linear to `outputs`.
std::vector<Unit> mlp_model(const std::vector<std::int64_t>& hidden, std::int64_t outputs);

enum class Stem {
  kImagenet,  ///< 7x7 stride 2, then 3x3 max-pool stride 2
  kSmall      ///< 3x3 stride 1, no max-pool: for images of about 8 to 64 pixels
};

/// ResNet (He et al. 2016; bottleneck v1.5) of depth 18, 34, 50, 101 or 152 as in torchvision.
std::vector<Unit> resnet_model(int depth, Stem stem, std::int64_t outputs);

/// One layer of a [[model.layers]] list. Fields that a type does not use are ignored here and refused by the reader.
struct LayerSpec {
  std::string
      type;  ///< linear, relu, conv2d, batch_norm2d, max_pool2d, global_avg_pool, flatten, basic_block, bottleneck
  std::string name;          ///< path of its parameters
  std::int64_t outputs = 0;  ///< out_features, out_channels or a block's channels
  std::int64_t kernel = 1, stride = 1, padding = 0;
  bool bias = true;
};

/// The layers of the list, one unit each; a ReLU after a batch norm or a linear layer is fused into it.
std::vector<Unit> sequential_model(const std::vector<LayerSpec>& layers);

}  // namespace convoy
