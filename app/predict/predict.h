// SPDX-License-Identifier: Apache-2.0
//
// One pass of a model over inputs without labels, and what its outputs mean. Every sample is computed exactly once, on
// any number of ranks in every parallel mode; rank 0 gets the outputs in the order of the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "app/train/evaluate.h"

namespace convoy {

/// Outputs [rows, K] of consecutive samples from `first` on, as float32.
using TakeRows = std::function<void(std::int64_t first, std::span<const float> rows)>;

/// Calls `take` on rank 0 for every sample of `inputs`, batch by batch. outputs: K. after_batch: as in evaluate(), but
/// its answer is not asked for. Collective.
void predict(Run& run, const Dataset& inputs, std::int64_t outputs, const TakeRows& take,
             const AfterBatch& after_batch);

/// A class and what the model says of it.
struct ScoredClass {
  std::int64_t index = 0;
  double score = 0;
};

/// What scores are, by the loss: with cross-entropy the softmax of the outputs, else the outputs themselves.
enum class ScoreKind { kProbability, kOutput };
[[nodiscard]] ScoreKind score_kind(const Loss& loss);

/// The `count` classes with the largest outputs [K], the largest first; of equal ones the lowest index first, as an
/// evaluation counts top-1 and top-5; NaN last.
[[nodiscard]] std::vector<ScoredClass> top_classes(std::span<const float> outputs, std::int64_t count, ScoreKind kind);

}  // namespace convoy
