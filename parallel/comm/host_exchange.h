// SPDX-License-Identifier: Apache-2.0
//
// Sends texts and named host arrays between two ranks, one at a time, so that at most one is buffered; merges the texts
// of all ranks on the way to rank 0; and compares numbers of all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "layers/base/host_tensor.h"
#include "parallel/comm/communicator.h"

namespace convoy {

void send_text(Communicator& communicator, const std::string& text, int peer, const std::string& what);
[[nodiscard]] std::string receive_text(Communicator& communicator, int peer, const std::string& what);

void send_tensors(Communicator& communicator, const std::vector<HostTensor>& tensors, int peer,
                  const std::string& what);
[[nodiscard]] std::vector<HostTensor> receive_tensors(Communicator& communicator, int peer, const std::string& what);

/// Makes one text of those of two ranges of ranks, which follow each other.
using MergeTexts = std::function<std::string(std::string lower, const std::string& higher)>;

/// The texts of all ranks, merged along a binomial tree, on rank 0; empty on the others. A rank takes part in at most
/// 1 + log2(ranks) transfers. Collective.
[[nodiscard]] std::string reduce_texts(Communicator& communicator, std::string text, const MergeTexts& merge,
                                       const std::string& what);
/// One after the other, on rank 0.
[[nodiscard]] std::string join_texts(Communicator& communicator, std::string text, const std::string& what);

/// 53 bits of a digest, which all_reduce() carries exactly.
[[nodiscard]] inline double digest_number(std::uint64_t digest) { return static_cast<double>(digest >> 11); }
/// Stands for a number that a rank does not have.
inline constexpr double kNoNumber = std::numeric_limits<double>::infinity();
/// Whether each of the numbers is the same on all ranks that have it: as many numbers on each. Collective.
[[nodiscard]] bool all_equal(Communicator& communicator, std::span<const double> numbers, const std::string& what);

}  // namespace convoy
