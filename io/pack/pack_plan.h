// SPDX-License-Identifier: Apache-2.0
//
// Which sample of a source goes where in a packing: the split into training and validation, the order of each, and the
// file. Relies on the keyed permutation of sampler.h. Invariant: every sample is in exactly one place; the samples of a
// part, file by file, are in the same order however many files there are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/pack/pack_source.h"

namespace convoy {

/// What one file holds, as positions in the order: training, then validation.
struct PackRange {
  std::int64_t first = 0, validation = 0, last = 0;
};

struct PackPlan {
  std::vector<std::int64_t> order;  ///< samples of the source as they are written, file by file
  std::vector<PackRange> files;     ///< one behind the other
  bool split = false;               ///< two groups, else files without groups
};

/// Takes round(share x members) of each class, but never all, for validation, chosen by `seed`; without `shuffle` both
/// parts keep the order of the source. A source with a validation part of its own is split there. Throws an Error of
/// bad input when a part would be empty, or the split is there already. Each of the `files` gets a contiguous range
/// of both parts, nearly as long as those of the others.
[[nodiscard]] PackPlan plan_packing(const PackSource& source, double share, std::uint64_t seed,
                                    std::optional<std::uint64_t> shuffle, int files);

/// Lays the parts out over the files. Throws an Error of bad input when a file would have nothing of one.
void lay_out(PackPlan& plan, const std::vector<std::int64_t>& training, const std::vector<std::int64_t>& validation,
             int files);

/// For each of `labels`: whether it is held out.
[[nodiscard]] std::vector<bool> held_out_samples(const std::vector<std::int64_t>& labels, std::int64_t classes,
                                                 double share, std::uint64_t seed);

}  // namespace convoy
