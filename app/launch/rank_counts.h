// SPDX-License-Identifier: Apache-2.0
//
// Valid numbers of ranks of a training run, and the choice of hosts. Validity is determined with the functions that
// training uses (plan_layout, check_plan), so that both agree. The choice is a pure function. Invariant: a host is used
// with all of its slots or not at all.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "app/config/config.h"
#include "app/launch/host_list.h"
#include "io/data/dataset.h"

namespace convoy {

class RankCounts {
 public:
  /// Opens the data for its size; a usage Error of that passes through.
  explicit RankCounts(const Config& config);
  /// Why so many ranks cannot train it; empty when they can.
  [[nodiscard]] std::string problem(int ranks) const;

 private:
  Config config_;
  std::unique_ptr<Dataset> data_;
  int units_;
};

struct NodeRange {
  int min = 1, max = 1;
};

/// Says what is wrong with a number of ranks; empty when nothing is.
using RankProblem = std::function<std::string(int ranks)>;

/// The largest number of hosts within the range whose ranks suit: those in use first, then in the order of the list.
/// Nothing when too few are there or none suits.
[[nodiscard]] std::optional<HostList> choose_hosts(const HostList& usable, const HostList& in_use, NodeRange nodes,
                                                   const RankProblem& problem);

/// Throws a usage Error when no number of hosts in the range can ever suit, naming rank counts that would. `usable` has
/// the slots that count; per_node: that each host to come will have, 0 when that is not known.
void check_nodes(const HostList& usable, NodeRange nodes, int per_node, const RankProblem& problem);

}  // namespace convoy
