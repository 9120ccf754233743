// SPDX-License-Identifier: Apache-2.0
//
// One clock for the traces of all ranks. Ranks of one node share the monotonic clock; between nodes the offset is
// estimated from the quickest of several round trips (Cristian 1989), good to half of its time.
#pragma once

#include "parallel/comm/communicator.h"

namespace convoy {

/// Seconds to add to this rank's trace::now() to get rank 0's. Every member calls it.
[[nodiscard]] double clock_offset(Communicator& all, const std::string& host);

}  // namespace convoy
