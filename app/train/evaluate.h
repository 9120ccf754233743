// SPDX-License-Identifier: Apache-2.0
//
// One pass over a data set in evaluation mode: every sample exactly once, on any number of ranks.
#pragma once

#include <cmath>
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
  std::vector<double> confusion;      ///< [K, K], see confusion.h; empty: it was not asked for
  std::vector<std::string> warnings;  ///< of samples with something wrong

  [[nodiscard]] double score(std::string_view name) const;  ///< NaN where there is none of that name
};

[[nodiscard]] inline bool has_top1(const EvalResult& result) { return !std::isnan(result.score("top1")); }

/// A score for people: "top-1", "93.41 %".
struct ShownScore {
  std::string_view label;
  std::string value;
};

/// The scores of `result` in their order; top-5 only of a network with more than five outputs. digits: as many as the
/// lines of a training have, or those that a result has.
enum class Digits { kLine, kResult };
[[nodiscard]] std::vector<ShownScore> shown_scores(const EvalResult& result, std::int64_t outputs, Digits digits);

/// Of a model, and of the average of its weights (train.ema_decay).
struct EvalResults {
  EvalResult model;
  std::optional<EvalResult> average;
};

/// Called on every rank after each batch but the last: so many are done, of so many. False, on every rank, ends the
/// evaluation. It may communicate.
using AfterBatch = std::function<bool(std::int64_t done, std::int64_t batches)>;

/// The elements of a float tensor, on the host as float32.
[[nodiscard]] std::vector<float> host_floats(Backend& backend, const Tensor& values);

/// The classes of a confusion matrix over `data`: those of the model; 0 with float targets, with too many of them
/// (kMostConfusionClasses), or where no rank has all outputs of a sample (parallel.shard_head).
[[nodiscard]] std::int64_t confusion_classes(const Run& run, const Dataset& data);

/// Returns the same result on every rank; nothing if `after_batch` has ended it. The loss has no label smoothing.
/// classes: K of the confusion matrix; 0: none. Collective.
std::optional<EvalResult> evaluate(Run& run, const Dataset& data, const AfterBatch& after_batch,
                                   std::int64_t classes = 0);

/// The same of the model, and then, without a confusion matrix, of the average of its weights if the run has one.
/// Collective.
std::optional<EvalResults> evaluate_with_average(Run& run, const Dataset& data, const AfterBatch& after_batch,
                                                 std::int64_t classes = 0);

}  // namespace convoy
