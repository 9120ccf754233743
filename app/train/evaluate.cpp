// SPDX-License-Identifier: Apache-2.0
#include "app/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "app/train/broken_report.h"
#include "io/data/loader.h"
#include "layers/cpu/openmp_waits.h"

namespace convoy {

namespace {

enum Sum : std::size_t {
  kLoss,
  kFirst,
  kSecond,
  kNews,
  kTargets
};  // kTargets: of each output a sum and one of squares

// Adds to sums [2 * outputs] those of the targets and their squares, around the first target of the data, which keeps
// the difference of the two exact.
void add_targets(const Batch& batch, const std::vector<float>& pivot, std::span<double> sums) {
  if (batch.targets == nullptr) return;
  const auto outputs = static_cast<std::size_t>(batch.target_size);
  for (std::int64_t n = 0; n < batch.samples; ++n) {
    for (std::size_t k = 0; k < outputs; ++k) {
      const double distance = static_cast<double>(batch.targets[n * batch.target_size + static_cast<std::int64_t>(k)]) -
                              static_cast<double>(pivot[k]);
      sums[2 * k] += distance;
      sums[2 * k + 1] += distance * distance;
    }
  }
}

double squared_distances(std::span<const double> sums, double samples) {
  double total = 0;
  for (std::size_t k = 0; k + 1 < sums.size(); k += 2) total += sums[k + 1] - sums[k] * sums[k] / samples;
  return total;
}

}  // namespace

double EvalResult::score(std::string_view name) const {
  const auto at = std::find_if(scores.begin(), scores.end(), [&](const auto& score) { return score.first == name; });
  return at == scores.end() ? std::numeric_limits<double>::quiet_NaN() : at->second;
}

std::optional<EvalResult> evaluate(Run& run, const Dataset& data, const AfterBatch& after_batch) {
  const LoaderOptions options = evaluation_loader(run);
  run.runner->share_state();
  const Sampler sampler(data.size(), run.config.run.seed, false);
  Loader loader(data, sampler, options);
  const std::int64_t steps = BatchPlan{data.size(), options.global_batch, false}.steps_per_epoch();

  const auto outputs = static_cast<std::size_t>(data.target_size());
  std::vector<float> pivot(outputs);
  if (outputs > 0) data.read(0, nullptr, nullptr, pivot.data());
  std::vector<double> sums(kTargets + 2 * outputs);
  for (std::int64_t i = 0; i < steps; ++i) {
    follow_openmp_waits();
    const auto& microbatches = loader.next().microbatches;
    for (const Batch& batch : microbatches) add_targets(batch, pivot, std::span(sums).subspan(kTargets));
    const LossTotals totals = run.runner->evaluate(microbatches);
    sums[kLoss] += totals.loss;
    sums[kFirst] += totals.first;
    sums[kSecond] += totals.second;
    if (i + 1 < steps && !after_batch(i + 1, steps)) return std::nullopt;
  }
  sums[kNews] = broken_news(data);
  run.communicator->all_reduce(std::span<double>(sums), ReduceOp::kSum, "evaluation sums");
  const auto n = static_cast<double>(data.size());
  EvalResult result;
  result.loss = sums[kLoss] / n;
  result.samples = data.size();
  const double first = sums[kFirst] / n, second = sums[kSecond] / n;
  switch (run.config.train.loss.scores(outputs > 0)) {
    case Scores::kTopK: result.scores = {{"top1", first}, {"top5", second}}; break;
    case Scores::kMultiLabel: result.scores = {{"accuracy", first}, {"exact_match", second}}; break;
    case Scores::kRegression: {
      const double spread = squared_distances(std::span(sums).subspan(kTargets), n);
      const double errors = sums[kSecond] * static_cast<double>(outputs);
      const double r2 = spread > 0 ? 1 - errors / spread : std::numeric_limits<double>::quiet_NaN();
      result.scores = {{"mae", first}, {"rmse", std::sqrt(second)}, {"r2", r2}};
    }
  }
  if (sums[kNews] > 0) result.warnings = share_broken(*run.communicator, data);
  return result;
}

}  // namespace convoy
