// SPDX-License-Identifier: Apache-2.0
//
// Detects ranks that differ before training: all ranks must have the same program version, config and overrides, and
// see the same data and the same kind of device. Invariant: all ranks return, or all throw the same collective usage
// Error, which names the ranks that differ.
#pragma once

#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// Ranks whose text is not the most common one (with a tie, not rank 0's), in order.
[[nodiscard]] std::vector<int> odd_ones_out(const std::vector<std::string>& texts);

/// Before rank 0's config is sent to all: the version, the file and the overrides that each rank was started with. A
/// rank that cannot read the file (it may lie on rank 0's node alone) is not an error.
void check_same_command(Communicator& communicator, const std::string& path, const std::vector<std::string>& overrides);

/// When all is built: the model's size, the cut, the kind of device. (The data set's size comes from rank 0.)
void check_same_run(const Run& run);

}  // namespace convoy
