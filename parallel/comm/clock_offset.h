// SPDX-License-Identifier: Apache-2.0
//
// A common clock for the traces of all ranks. Ranks of one node share the monotonic clock. Between nodes the offset is
// estimated from the fastest of several round trips (Cristian 1989), with an error of at most half of its time. Offsets
// add up along a binomial tree of the ranks, and so do their errors: over at most log2(ranks) round trips.
#pragma once

#include <string>

#include "parallel/comm/communicator.h"

namespace convoy {

/// Seconds to add to this rank's trace::now() to get rank 0's. Collective.
[[nodiscard]] double clock_offset(Communicator& all, const std::string& host);

}  // namespace convoy
