// SPDX-License-Identifier: Apache-2.0
//
// Which sample of a source goes where in a packed file: the split into training and validation, and the order of each.
// Relies on the keyed permutation of sampler.h. Invariant: every sample is in exactly one place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/pack_source.h"

namespace convoy {

struct PackPlan {
  std::vector<std::int64_t> order;  ///< samples of the source as they are written: training, then validation
  std::int64_t training = 0;        ///< so many are training
  bool split = false;               ///< two groups, else one file without groups
};

/// Takes round(share x members) of each class, but never all, for validation, chosen by `seed`; without `shuffle` both
/// parts keep the order of the source. A source with a validation part of its own is split there. Throws an Error of
/// bad input when a part would be empty, or the split is there already.
[[nodiscard]] PackPlan plan_packing(const PackSource& source, double share, std::uint64_t seed,
                                    std::optional<std::uint64_t> shuffle);

/// For each of `labels`: whether it is held out.
[[nodiscard]] std::vector<bool> held_out_samples(const std::vector<std::int64_t>& labels, std::int64_t classes,
                                                 double share, std::uint64_t seed);

}  // namespace convoy
