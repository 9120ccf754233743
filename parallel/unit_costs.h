// SPDX-License-Identifier: Apache-2.0
//
// What each unit of a model costs, measured: the input of partition, simulator and plan.
#pragma once

#include <string>
#include <vector>

#include "layers/model.h"

namespace convoy {

/// Of one microbatch through one unit.
struct UnitCost {
  double forward = 0, backward_input = 0, backward_weight = 0;  ///< seconds
  double output_bytes = 0;                                      ///< of the activation that it hands on
  double cache_bytes = 0;                                       ///< kept from forward to backward
  double parameter_bytes = 0;                                   ///< of its float32 parameters, once
  [[nodiscard]] double seconds() const { return forward + backward_input + backward_weight; }
};

/// Times one unit by itself on `backend`, which afterwards still holds its memory: use one for measuring only. The
/// first unit of a network computes no gradient of its input. Takes the median of a few passes, a fraction of a second.
[[nodiscard]] UnitCost measure_unit(Backend& backend, Unit unit, const UnitInfo& info, bool first);

/// As text that reads back to the same numbers, to travel between ranks and into files.
[[nodiscard]] std::string pack_costs(const std::vector<UnitCost>& costs);
[[nodiscard]] std::vector<UnitCost> unpack_costs(const std::string& text);

}  // namespace convoy
