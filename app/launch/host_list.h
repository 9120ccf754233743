// SPDX-License-Identifier: Apache-2.0
//
// Hosts with their slots, as mpirun's hostfile lists them: `NAME [slots=N] [max_slots=N]` a line, # begins a comment.
// Pure functions. Invariant: a list has each host once, with at least one slot, in the order of the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convoy {

struct Host {
  std::string name;
  int slots = 1;  ///< ranks that it may be given
  bool operator==(const Host&) const = default;
};
using HostList = std::vector<Host>;

/// Throws a usage Error that begins with PLACE:LINE. Slots of a host that is listed twice add up, as for mpirun.
[[nodiscard]] HostList parse_hosts(std::string_view text, const std::string& place);

/// "a:2,b:2", as mpirun takes them.
[[nodiscard]] std::string join_hosts(const HostList& hosts);
/// "a:2 n[001-064]:4", or "none": three or more whose numbers follow each other are one word. 0 slots are left out.
[[nodiscard]] std::string describe_hosts(const HostList& hosts);

[[nodiscard]] int count_slots(const HostList& hosts);

}  // namespace convoy
