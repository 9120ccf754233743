// SPDX-License-Identifier: Apache-2.0
//
// Samples that could not be decoded, from the ranks that read them to the user: each once, through rank 0. Relies on
// io/data/broken_files.h. Invariant: after an exchange every rank has the same list.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// 1 when this rank has read broken samples of `data` that the others do not have, else 0: for a sum over all ranks
/// that goes along with others.
[[nodiscard]] double broken_news(const Dataset& data);

/// Shares what each rank has read, and returns it as lines for the user. Throws a collective Error when that is more
/// than data.max_broken allows. Every rank calls it when the sum is not 0.
[[nodiscard]] std::vector<std::string> share_broken(Communicator& all, const Dataset& data);

/// To stderr.
void print_warning(const std::string& text);

}  // namespace convoy
