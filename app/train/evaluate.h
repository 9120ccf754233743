// SPDX-License-Identifier: Apache-2.0
//
// One pass over a data set in evaluation mode: every sample exactly once, on any number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/build/build_run.h"

namespace convoy {

/// Means over all samples. The scores have their names in metrics.jsonl. Shares in [0, 1]: top1 and top5, or of several
/// labels accuracy (outputs on the side of their target) and exact_match (samples all of whose outputs are). Of a
/// regression: mae, the mean absolute error; rmse, the root of the mean squared error; r2, the coefficient of
/// determination: 1 - squared errors / squared distances of the targets from their means, both summed over samples and
/// outputs (sklearn.metrics.r2_score, multioutput="variance_weighted").
struct EvalResult {
  double loss = 0;
  std::vector<std::pair<std::string_view, double>> scores;
  std::int64_t samples = 0;
  std::vector<std::string> warnings;  ///< of samples with something wrong

  [[nodiscard]] double score(std::string_view name) const;  ///< NaN where there is none of that name
};

/// Called on every rank after each batch but the last: so many are done, of so many. False, on every rank, ends the
/// evaluation. It may communicate.
using AfterBatch = std::function<bool(std::int64_t done, std::int64_t batches)>;

/// Returns the same result on every rank; nothing if `after_batch` has ended it. The loss has no label smoothing.
/// Collective.
std::optional<EvalResult> evaluate(Run& run, const Dataset& data, const AfterBatch& after_batch);

}  // namespace convoy
