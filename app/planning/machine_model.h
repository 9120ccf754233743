// SPDX-License-Identifier: Apache-2.0
//
// What planning uses of a machine and a model on it: measured here (calibrate.h) or computed from stated figures
// (stated_machine.h). Plain numbers, so that predictions are pure functions of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/schedule/simulator.h"
#include "parallel/schedule/unit_costs.h"

namespace convoy {

/// Costs of all units for a microbatch of so many samples.
struct SizedCosts {
  std::int64_t samples = 0;
  std::vector<UnitCost> units;
};

struct MachineModel {
  std::string name;               ///< for people
  std::vector<SizedCosts> sizes;  ///< in rising order
  int ranks_per_node = 0;         ///< 0: all on one
  Link node, network;             ///< one rank to another
  double node_reduce = 0;         ///< bytes per second of an all-reduce by the bus convention (2(n-1)/n); 0: node's
  double reduce_hidden = 0;       ///< of the last microbatch's backward that reductions can hide behind, 0 to 1
  double optimizer_seconds = 0;   ///< per byte of float32 parameters
  double input_seconds = 0;       ///< of one sample, before the first unit
  double crowding = 1;            ///< time with all ranks computing over time with one
  double memory_bytes = 0;        ///< of a rank; 0: no limit

  /// Costs for a microbatch of `samples`, interpolated linearly between the two nearest sizes, beyond them in
  /// proportion.
  [[nodiscard]] std::vector<UnitCost> costs(std::int64_t samples) const;
  [[nodiscard]] bool same_node(int rank_a, int rank_b) const {
    return ranks_per_node == 0 || rank_a / ranks_per_node == rank_b / ranks_per_node;
  }
  [[nodiscard]] const Link& link(int rank_a, int rank_b) const { return same_node(rank_a, rank_b) ? node : network; }
  /// Seconds of summing `bytes` over `ranks` ranks that lie `stride` apart: a ring for the bytes, a tree for latency
  /// (Thakur et al. 2005).
  [[nodiscard]] double all_reduce_seconds(double bytes, int ranks, int stride) const;
};

/// As JSON, and back. Throws a usage Error naming the file when it is none.
void write_machine(const std::string& path, const MachineModel& machine);
[[nodiscard]] MachineModel read_machine(const std::string& path);

}  // namespace convoy
