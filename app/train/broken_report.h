// SPDX-License-Identifier: Apache-2.0
//
// Reports samples that could not be decoded: rank 0 reports each once for all ranks. Relies on io/data/broken_files.h.
// Invariant: after an exchange every rank has the same list.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// 1 when this rank has read broken samples of `data` that the others do not know, else 0: to be summed over all ranks
/// together with other values.
[[nodiscard]] double broken_news(const Dataset& data);

/// Exchanges the broken samples of all ranks and returns them as lines for the user. Throws a collective Error when
/// there are more than data.max_broken. Collective; called when the sum is not 0.
[[nodiscard]] std::vector<std::string> share_broken(Communicator& all, const Dataset& data);

}  // namespace convoy
