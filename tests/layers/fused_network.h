// SPDX-License-Identifier: Apache-2.0
//
// A small residual network in which a backend that fuses batch norms with convolutions finds every kind of fusion: a
// stem with max pooling, blocks with and without a shortcut of their own, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "layers/linear.h"
#include "layers/model.h"
#include "layers/pooling.h"
#include "layers/residual.h"
#include "layers/sequence.h"
#include "layers/stem.h"

namespace convoy {

/// For images [N, 3, 16, 16] and larger. All channels but those of the image are multiples of 8.
inline std::vector<Unit> fused_network(std::int64_t outputs) {
  using Kind = ResidualBlock::Kind;
  std::vector<Unit> units;
  units.push_back({"stem", "", std::make_unique<ResNetStem>(Conv2dSpec{0, 8, 7, 2, 3}, PoolSpec{3, 2, 1})});
  units.push_back({"a", "a", std::make_unique<ResidualBlock>(Kind::kBottleneck, 8, 1)});
  units.push_back({"b", "b", std::make_unique<ResidualBlock>(Kind::kBottleneck, 8, 1)});
  units.push_back({"c", "c", std::make_unique<ResidualBlock>(Kind::kBasic, 16, 2)});
  units.push_back({"d", "d", std::make_unique<ResidualBlock>(Kind::kBasic, 16, 1)});
  auto head = std::make_unique<Sequence>();
  head->add("pool", std::make_unique<GlobalAvgPool>()).add("fc", std::make_unique<Linear>(outputs, true, false));
  units.push_back({"head", "", std::move(head)});
  return units;
}

}  // namespace convoy
