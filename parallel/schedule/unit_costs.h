// SPDX-License-Identifier: Apache-2.0
//
// What each unit of a model costs, measured: the input of partition, simulator and plan.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "layers/model.h"

namespace convoy {

/// Of one microbatch through one unit. What a step of a model with frozen units leaves out costs nothing.
struct UnitCost {
  double forward = 0, backward_input = 0, backward_weight = 0;  ///< seconds
  double output_bytes = 0;                                      ///< of the activation that it hands on
  double cache_bytes = 0;                                       ///< kept from forward to backward
  double parameter_bytes = 0;                                   ///< of its float32 parameters that learn, once
  [[nodiscard]] double seconds() const { return forward + backward_input + backward_weight; }
};

/// The same of a unit that is recomputed: its forward runs again before its backward, and what it keeps is the input
/// of its block, of so many bytes; 0 of a unit that does not begin one.
[[nodiscard]] UnitCost recomputed(const UnitCost& cost, double input_bytes);
/// The same of all units, with the Unit::block of each. The input of the first unit counts as what that keeps.
[[nodiscard]] std::vector<UnitCost> recomputed(std::vector<UnitCost> costs, const std::vector<int>& blocks);

/// A unit to be timed.
struct Candidate {
  Unit unit;
  UnitInfo info;
  bool lowest = false;        ///< that learns: computes no gradient of its input
  bool below = false;         ///< before that: has no backward
  bool begins_block = false;  ///< of recomputed units
};

/// Unit `index` of the network that `infos` describes.
[[nodiscard]] Candidate candidate(Unit unit, const std::vector<UnitInfo>& infos, std::size_t index);

/// Times units by themselves on `backend`, which afterwards still holds their memory: use one for measuring only.
/// Several rounds over all of them; what a unit costs beside another comes from its quickest pass, the sum over all
/// from the median round, so that other work on the machine for a moment makes no unit look slow. after_round: called
/// after each round; may throw, which ends the measurement.
[[nodiscard]] std::vector<UnitCost> measure_units(Backend& backend, std::vector<Candidate> candidates,
                                                  const std::function<void()>& after_round = {});

/// As text that reads back to the same numbers, to travel between ranks and into files.
[[nodiscard]] std::string pack_costs(const std::vector<UnitCost>& costs);
[[nodiscard]] std::vector<UnitCost> unpack_costs(const std::string& text);

}  // namespace convoy
