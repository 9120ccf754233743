// SPDX-License-Identifier: Apache-2.0
#include "app/train/evaluate.h"

#include <array>

#include "app/train/broken_report.h"
#include "io/data/loader.h"

namespace convoy {

EvalResult evaluate(Run& run, const Dataset& data) {
  const LoaderOptions options = evaluation_loader(run);
  run.runner->share_state();
  const Sampler sampler(data.size(), run.config.run.seed, false);
  Loader loader(data, sampler, options);
  const std::int64_t steps = BatchPlan{data.size(), options.global_batch, false}.steps_per_epoch();

  std::array<double, 4> sums{};
  for (std::int64_t i = 0; i < steps; ++i) {
    const LossTotals totals = run.runner->evaluate(loader.next().microbatches);
    sums[0] += totals.loss;
    sums[1] += totals.top1;
    sums[2] += totals.top5;
  }
  sums[3] = broken_news(data);
  run.communicator->all_reduce(std::span<double>(sums), ReduceOp::kSum, "evaluation sums");
  const auto n = static_cast<double>(data.size());
  EvalResult result{sums[0] / n, sums[1] / n, sums[2] / n, data.size(), {}};
  if (sums[3] > 0) result.warnings = share_broken(*run.communicator, data);
  return result;
}

}  // namespace convoy
