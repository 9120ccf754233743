// SPDX-License-Identifier: Apache-2.0
//
// ResNet-9, the network of the DAWNBench entries for CIFAR-10 (Page 2018, "How to train your ResNet"): for images of 8
// to 127 pixels. 6.6 million parameters with 10 classes.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/linear.h"
#include "layers/models/models.h"
#include "layers/pooling.h"
#include "layers/scale.h"
#include "layers/sequence.h"
#include "layers/skip_connection.h"

namespace convoy {

namespace {

constexpr float kLogitScale = 0.125F;

// Adds "conv" and "bn" of that name: a 3x3 convolution, batch norm and ReLU.
void add_conv(Sequence& sequence, const std::string& name, std::int64_t channels) {
  sequence.add(join_path(name, "conv"), std::make_unique<Conv2d>(Conv2dSpec{0, channels, 3, 1, 1}, false));
  sequence.add(join_path(name, "bn"), std::make_unique<BatchNorm2d>(true));
}

Unit conv_unit(const std::string& name, std::int64_t channels, bool pool) {
  auto sequence = std::make_unique<Sequence>();
  add_conv(*sequence, "", channels);
  if (pool) sequence->add("pool", std::make_unique<MaxPool2d>(PoolSpec{2, 2, 0}));
  return {name, name, std::move(sequence)};
}

Unit residual_unit(const std::string& name, std::int64_t channels) {
  Sequence sequence;
  add_conv(sequence, "res1", channels);
  add_conv(sequence, "res2", channels);
  return {name, name, std::make_unique<SkipConnection>(std::move(sequence))};
}

}  // namespace

std::vector<Unit> resnet9_model(std::int64_t outputs) {
  std::vector<Unit> units;
  units.push_back(conv_unit("prep", 64, false));
  units.push_back(conv_unit("layer1", 128, true));
  units.push_back(residual_unit("layer1.residual", 128));
  units.push_back(conv_unit("layer2", 256, true));
  units.push_back(conv_unit("layer3", 512, true));
  units.push_back(residual_unit("layer3.residual", 512));
  auto head = std::make_unique<Sequence>();
  head->add("pool", std::make_unique<GlobalMaxPool>()).add("fc", std::make_unique<Linear>(outputs, false, false));
  head->add("scale", std::make_unique<Scale>(kLogitScale));
  units.push_back({"head", "", std::move(head)});
  return units;
}

}  // namespace convoy
