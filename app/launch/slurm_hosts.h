// SPDX-License-Identifier: Apache-2.0
//
// The nodes of the Slurm allocation that this process is in, without those that are down. Relies on scontrol and sinfo.
// Invariant: a node that Slurm calls draining is kept, since its jobs continue.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/launch/host_source.h"

namespace convoy {

/// Null outside of an allocation.
[[nodiscard]] std::unique_ptr<HostSource> slurm_hosts();

/// "2(x3),1" -> 2 2 2 1; empty for other texts.
[[nodiscard]] std::vector<int> parse_tasks_per_node(const std::string& text);

/// Names of the nodes that lines "NAME STATE" of sinfo call down.
[[nodiscard]] std::vector<std::string> down_nodes(const std::string& sinfo_output);

}  // namespace convoy
