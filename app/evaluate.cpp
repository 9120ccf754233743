// SPDX-License-Identifier: Apache-2.0
#include "app/evaluate.h"

#include <array>

#include "io/loader.h"

namespace convoy {

EvalResult evaluate(Run& run, const Dataset& data) {
  const LoaderOptions options = evaluation_loader(run);
  run.runner->share_state();
  const Sampler sampler(data.size(), run.config.run.seed, false);
  Loader loader(data, sampler, options);
  const std::int64_t steps = BatchPlan{data.size(), options.global_batch, false}.steps_per_epoch();

  std::array<double, 3> sums{};
  for (std::int64_t i = 0; i < steps; ++i) {
    const LossTotals totals = run.runner->evaluate(loader.next().microbatches);
    sums[0] += totals.loss;
    sums[1] += totals.top1;
    sums[2] += totals.top5;
  }
  run.communicator->all_reduce(std::span<double>(sums), ReduceOp::kSum, "evaluation sums");
  const auto n = static_cast<double>(data.size());
  return {sums[0] / n, sums[1] / n, sums[2] / n, data.size()};
}

}  // namespace convoy
