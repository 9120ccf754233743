// SPDX-License-Identifier: Apache-2.0
//
// One pass over a data set in evaluation mode: every sample exactly once, on any number of ranks.
#pragma once

#include "app/build/build_run.h"

namespace convoy {

struct EvalResult {
  double loss = 0, top1 = 0, top5 = 0;  ///< means over all samples; top1 and top5 are shares in [0, 1]
  std::int64_t samples = 0;
  std::vector<std::string> warnings;  ///< of broken samples
};

/// Returns the same result on every rank. The loss has no label smoothing. Collective.
EvalResult evaluate(Run& run, const Dataset& data);

}  // namespace convoy
