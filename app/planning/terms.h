// SPDX-License-Identifier: Apache-2.0
//
// The terms of the cost model, which docs/planner.md explains one by one. Each can be left out of a machine, to see
// what it explains. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/planning/predict.h"
#include "layers/base/options.h"

namespace convoy {

/// Those up to kInput are parts of a step, in the order in which step_parts() adds them. kBuckets hides reductions, so
/// it is no part. The rest belong to the time of a training.
enum class Term {
  kLaunch,
  kTiles,
  kOptimizer,
  kLinks,
  kReduce,
  kLatency,
  kSharing,
  kContention,
  kFixed,
  kJitter,
  kInput,
  kBuckets,
  kEvaluation,
  kCheckpoint,
  kStartup
};
CONVOY_OPTION_ENUM(Term, "launch", "tiles", "optimizer", "links", "reduce", "latency", "sharing", "contention", "fixed",
                   "jitter", "input", "buckets", "evaluation", "checkpoint", "startup");

/// Throws a usage Error for a name that is none. option: that gave them.
[[nodiscard]] std::vector<Term> parse_terms(const std::vector<std::string>& names, std::string_view option);

/// The machine without this term.
[[nodiscard]] MachineModel without(MachineModel machine, Term term);

struct StepPart {
  std::string_view name;
  double seconds = 0;
};
/// What the predicted step is made of: "compute" (bytes and products of the stage that idles most), "bubble" (its idle
/// time), then what each term adds to those before it. The sum is the step. A part may be slightly negative where a
/// term makes room for another one.
[[nodiscard]] std::vector<StepPart> step_parts(const Prediction& prediction, const Config& config,
                                               const MachineModel& machine);

}  // namespace convoy
