// SPDX-License-Identifier: Apache-2.0
#include "app/train/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "app/build/build_model.h"
#include "app/train/broken_report.h"
#include "app/train/confusion.h"
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

struct ScoreForm {
  std::string_view name, label;
  bool percent;
  std::string_view line, result;  // formats
};
constexpr auto kScoreForms = std::to_array<ScoreForm>({
    {"top1", "top-1", true, "{:.2f} %", "{:.4f} %"},
    {"top5", "top-5", true, "{:.2f} %", "{:.4f} %"},
    {"accuracy", "accuracy", true, "{:.2f} %", "{:.4f} %"},
    {"exact_match", "exact match", true, "{:.2f} %", "{:.4f} %"},
    {"mae", "MAE", false, "{:.4g}", "{:.9g}"},
    {"rmse", "RMSE", false, "{:.4g}", "{:.9g}"},
    {"r2", "R2", false, "{:.4f}", "{:.9g}"},
});

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

std::vector<ShownScore> shown_scores(const EvalResult& result, std::int64_t outputs, Digits digits) {
  std::vector<ShownScore> shown;
  for (const auto& [name, value] : result.scores) {
    if (name == "top5" && outputs <= 5) continue;
    const std::string_view key = name;
    const auto form =
        std::find_if(kScoreForms.begin(), kScoreForms.end(), [&](const auto& f) { return f.name == key; });
    const std::string_view format = digits == Digits::kLine ? form->line : form->result;
    const double number = std::isnan(value) ? std::abs(value) : value;  // without a sign
    shown.push_back({form->label, fmt::format(fmt::runtime(format), form->percent ? 100 * number : number)});
  }
  return shown;
}

std::vector<float> host_floats(Backend& backend, const Tensor& values) {
  Tensor floats = values;
  if (values.dtype() != DType::kF32) {
    floats = backend.tensor(values.shape(), DType::kF32);
    backend.run(ops::Cast{values, floats});
  }
  std::vector<float> host(static_cast<std::size_t>(values.size()));
  backend.copy_to_host(floats, host.data());
  return host;
}

std::int64_t confusion_classes(const Run& run, const Dataset& data) {
  const std::int64_t classes = data.target_size() > 0 || run.head ? 0 : output_size(run.config, *run.train);
  return classes <= kMostConfusionClasses ? classes : 0;
}

std::optional<EvalResult> evaluate(Run& run, const Dataset& data, const AfterBatch& after_batch, std::int64_t classes) {
  const LoaderOptions options = evaluation_loader(run);
  run.runner->share_state();
  const Sampler sampler(data.size(), run.config.run.seed, false);
  Loader loader(data, sampler, options);
  const std::int64_t steps = BatchPlan{data.size(), options.global_batch, false}.steps_per_epoch();

  const auto outputs = static_cast<std::size_t>(data.target_size());
  std::vector<float> pivot(outputs);
  if (outputs > 0) data.read(0, nullptr, nullptr, pivot.data());
  std::vector<double> sums(kTargets + 2 * outputs);
  const auto columns = static_cast<std::size_t>(classes);
  std::vector<double> confusion(columns * columns);
  const auto count = [&](const Batch& batch, const Tensor& values) {
    const std::vector<float> rows = host_floats(*run.backend, values);
    for (std::size_t n = 0; n < static_cast<std::size_t>(batch.samples); ++n) {
      const std::int64_t predicted = predicted_class(std::span(rows).subspan(n * columns, columns));
      if (predicted >= 0) ++confusion[static_cast<std::size_t>(batch.labels[n] * classes + predicted)];
    }
  };
  for (std::int64_t i = 0; i < steps; ++i) {
    follow_openmp_waits();
    const auto& microbatches = loader.next().microbatches;
    for (const Batch& batch : microbatches) add_targets(batch, pivot, std::span(sums).subspan(kTargets));
    const LossTotals totals =
        run.runner->evaluate(microbatches, classes > 0 ? StepRunner::TakeOutputs(count) : nullptr);
    sums[kLoss] += totals.loss;
    sums[kFirst] += totals.first;
    sums[kSecond] += totals.second;
    if (i + 1 < steps && !after_batch(i + 1, steps)) return std::nullopt;
  }
  sums[kNews] = broken_news(data);
  run.communicator->all_reduce(std::span<double>(sums), ReduceOp::kSum, "evaluation sums");
  if (classes > 0) {
    run.communicator->all_reduce(std::span<double>(confusion), ReduceOp::kSum, "confusion matrix");
  }
  const auto n = static_cast<double>(data.size());
  EvalResult result;
  result.loss = sums[kLoss] / n;
  result.samples = data.size();
  result.confusion = std::move(confusion);
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

std::optional<EvalResults> evaluate_with_average(Run& run, const Dataset& data, const AfterBatch& after_batch,
                                                 std::int64_t classes) {
  const std::int64_t passes = run.average ? 2 : 1;
  std::int64_t pass = 0;
  const auto after = [&](std::int64_t done, std::int64_t batches) {
    return after_batch(pass * batches + done, passes * batches);
  };
  std::optional<EvalResult> result = evaluate(run, data, after, classes);
  if (!result || !run.average) return result ? std::optional(EvalResults{*std::move(result), {}}) : std::nullopt;
  ++pass;
  run.average->exchange();
  std::optional<EvalResult> average = evaluate(run, data, after);
  run.average->exchange();
  run.runner->share_state();  // the weights themselves, of which a step shares only those that learn
  if (!average) return std::nullopt;
  return EvalResults{*std::move(result), std::move(average)};
}

}  // namespace convoy
