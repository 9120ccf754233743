// SPDX-License-Identifier: Apache-2.0
//
// Which units of a model are recomputed in backward (activation checkpointing; layers/model.h says how), and how they
// are grouped into blocks.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "layers/base/options.h"
#include "layers/model.h"

namespace convoy {

/// The value of model.recompute.
struct RecomputeOptions {
  static constexpr std::string_view kDescription = "\"none\", \"blocks\" or a list of unit names";
  bool blocks = false;             ///< those of recompute_blocks()
  std::vector<std::string> units;  ///< or prefixes of units' names
  bool operator==(const RecomputeOptions&) const = default;
};

/// What the option may be beside a list.
inline constexpr auto kRecomputeNames = std::to_array<std::string_view>({"none", "blocks"});

/// Sets Unit::block of all units but the last, the head. A unit of several layers is a block by itself. Those of one
/// layer, which have little inside that could be dropped, make blocks of ceil(sqrt(n)) neighbours, n being the number
/// of such units (Chen et al. 2016).
void recompute_blocks(std::vector<Unit>& units);

/// Sets Unit::block of the chosen units, one flag each. A unit of several layers is a block by itself, neighbours of
/// one layer are a block together.
void recompute_chosen(std::vector<Unit>& units, const std::vector<bool>& chosen);

}  // namespace convoy
