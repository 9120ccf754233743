// SPDX-License-Identifier: Apache-2.0
//
// ResNet 18 to 152, cut into units: stem, one per residual block, head.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "layers/base/error.h"
#include "layers/linear.h"
#include "layers/models/models.h"
#include "layers/pooling.h"
#include "layers/residual.h"
#include "layers/sequence.h"
#include "layers/stem.h"

namespace convoy {

namespace {

struct Plan {
  ResidualBlock::Kind kind;
  std::array<int, 4> blocks;
};

Plan plan_of(int depth) {
  using Kind = ResidualBlock::Kind;
  switch (depth) {
    case 18: return {Kind::kBasic, {2, 2, 2, 2}};
    case 34: return {Kind::kBasic, {3, 4, 6, 3}};
    case 50: return {Kind::kBottleneck, {3, 4, 6, 3}};
    case 101: return {Kind::kBottleneck, {3, 4, 23, 3}};
    case 152: return {Kind::kBottleneck, {3, 8, 36, 3}};
    default: fail_usage("resnet{}: unknown depth (18, 34, 50, 101 or 152)", depth);
  }
}

}  // namespace

std::vector<Unit> resnet_model(int depth, Stem stem, std::int64_t outputs) {
  const Plan plan = plan_of(depth);
  std::vector<Unit> units;

  const bool large = stem == Stem::kImagenet;
  const Conv2dSpec conv = large ? Conv2dSpec{0, 64, 7, 2, 3} : Conv2dSpec{0, 64, 3, 1, 1};
  auto first = std::make_unique<ResNetStem>(conv, large ? std::optional(PoolSpec{3, 2, 1}) : std::nullopt);
  units.push_back({"stem", "", std::move(first)});

  std::int64_t channels = 64;
  for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, channels *= 2) {
    for (int block = 0; block < plan.blocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      units.push_back({name, name, std::make_unique<ResidualBlock>(plan.kind, channels, stride)});
    }
  }

  auto head = std::make_unique<Sequence>();
  head->add("avgpool", std::make_unique<GlobalAvgPool>()).add("fc", std::make_unique<Linear>(outputs, true, false));
  units.push_back({"head", "", std::move(head)});
  return units;
}

}  // namespace convoy
