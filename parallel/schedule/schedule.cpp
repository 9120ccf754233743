// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule.h"

#include <algorithm>

#include "layers/base/error.h"
#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/schedule_communication.h"
#include "parallel/schedule/schedule_generators.h"

namespace convoy {

namespace {

constexpr std::string_view kInterleaved = "interleaved";
constexpr std::string_view kZbV = "zb_v";

void check_name(std::string_view name) {
  const std::vector<std::string_view>& names = schedule_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  fail_usage("parallel.schedule: '{}' is not a schedule ({})", name, fmt::join(names, ", "));
}

void check_at_least_one(std::string_view key, int value) {
  if (value < 1) fail_usage("parallel.{0}: {1} is not a number of {0} (it must be at least 1)", key, value);
}

void check_chunks(std::string_view name, int chunks) {
  if (name == kZbV) {
    if (chunks != 2) fail_usage("parallel.chunks: zb_v has 2 chunks, not {}", chunks);
  } else if (name == kInterleaved) {
    if (chunks < 2) fail_usage("parallel.chunks: interleaved needs at least 2 chunks, not {} (1f1b has 1)", chunks);
  } else if (chunks != 1) {
    fail_usage("parallel.chunks: {} has 1 chunk, not {} (interleaved has several)", name, chunks);
  }
}

void check_numbers(std::string_view name, int stages, int microbatches, int chunks) {
  check_at_least_one("stages", stages);
  check_at_least_one("microbatches", microbatches);
  check_at_least_one("chunks", chunks);
  check_chunks(name, chunks);
  if (name == "one_stage" && stages != 1) {
    fail_usage("parallel.stages: one_stage has 1 stage, not {} (gpipe and 1f1b have several)", stages);
  }
  if (name == "model" && microbatches != 1) {
    fail_usage("parallel.microbatches: model has 1 microbatch, not {} (gpipe and 1f1b have several)", microbatches);
  }
  if (name == kInterleaved && microbatches % stages != 0) {
    const int below = microbatches / stages * stages;
    const std::string good = below == 0 ? fmt::format("{}", stages) : fmt::format("{} or {}", below, below + stages);
    fail_usage("parallel.microbatches: interleaved needs a multiple of the {} stages, not {} ({})", stages,
               microbatches, good);
  }
}

ComputeLists compute_lists(std::string_view name, int stages, int microbatches, int chunks) {
  if (name == "gpipe") return gpipe_order(stages, microbatches);
  if (name == "1f1b") return one_forward_one_backward(stages, microbatches);
  if (name == kInterleaved) return interleaved_order(stages, microbatches, chunks);
  if (name == "zero_bubble") return zero_bubble_order(stages, microbatches);
  if (name == kZbV) return zb_v_order(stages, microbatches);
  return one_after_another(stages, microbatches);  // one_stage, model
}

}  // namespace

bool is_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput ||
         kind == ActionKind::kBackwardWeight;
}

bool is_communication(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kReceiveActivation ||
         kind == ActionKind::kSendGradient || kind == ActionKind::kReceiveGradient;
}

int Schedule::virtual_stage(int stage, int chunk) const {
  if (placement == Placement::kV) return chunk == 0 ? stage : 2 * stages - 1 - stage;
  return chunk * stages + stage;
}

int Schedule::stage_of(int virtual_stage) const {
  if (placement == Placement::kV) return virtual_stage < stages ? virtual_stage : 2 * stages - 1 - virtual_stage;
  return virtual_stage % stages;
}

int Schedule::chunk_of(int virtual_stage) const { return virtual_stage / stages; }

const std::vector<std::string_view>& schedule_names() {
  static const std::vector<std::string_view> names = {"one_stage",  "model",       "gpipe", "1f1b",
                                                      kInterleaved, "zero_bubble", kZbV};
  return names;
}

Schedule make_schedule(std::string_view name, int stages, int microbatches, int chunks) {
  check_name(name);
  check_numbers(name, stages, microbatches, chunks);
  Schedule schedule{.name = std::string(name),
                    .stages = stages,
                    .microbatches = microbatches,
                    .chunks = chunks,
                    .placement = name == kZbV ? Placement::kV : Placement::kLoop,
                    .actions = compute_lists(name, stages, microbatches, chunks)};
  for (std::vector<Action>& list : schedule.actions) {
    list.push_back({ActionKind::kReduceGradients});
    list.push_back({ActionKind::kOptimizerStep});
  }
  insert_communication(schedule);
  check_schedule(schedule);
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule forwards = schedule;
  for (std::vector<Action>& list : forwards.actions) {
    std::erase_if(list, [](const Action& action) { return action.kind != ActionKind::kForward; });
  }
  insert_communication(forwards);
  check_forward_schedule(forwards);
  return forwards;
}

int activations_in_flight(const Schedule& schedule, int stage) {
  int now = 0;
  int most = 0;
  for (const Action& action : schedule.actions.at(static_cast<std::size_t>(stage))) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) --now;
  }
  return most;
}

std::string action_name(const Action& action) {
  const std::string where =
      action.chunk == 0 ? fmt::format("{}", action.microbatch) : fmt::format("{}.{}", action.microbatch, action.chunk);
  switch (action.kind) {
    case ActionKind::kForward: return "F" + where;
    case ActionKind::kBackward: return "B" + where;
    case ActionKind::kBackwardInput: return "I" + where;
    case ActionKind::kBackwardWeight: return "W" + where;
    case ActionKind::kSendActivation: return "SA" + where;
    case ActionKind::kReceiveActivation: return "RA" + where;
    case ActionKind::kSendGradient: return "SG" + where;
    case ActionKind::kReceiveGradient: return "RG" + where;
    case ActionKind::kReduceGradients: return "Reduce";
    case ActionKind::kOptimizerStep: return "Step";
  }
  return "?";
}

}  // namespace convoy
