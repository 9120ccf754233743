// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "layers/base/option_error.h"
#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/schedule_communication.h"
#include "parallel/schedule/schedule_generators.h"

namespace convoy {

namespace {

/// How many chunks a stage has.
enum class Chunks { kOne, kTwo, kSeveral };

struct Entry {
  std::string_view name;
  ComputeLists (*order)(int stages, int microbatches, int chunks);
  Chunks chunks = Chunks::kOne;
  Placement placement = Placement::kLoop;
};

ComputeLists in_turn(int stages, int microbatches, int /*chunks*/) { return one_after_another(stages, microbatches); }

/// The schedules by name; those from kFirstPipeline on are what parallel.schedule chooses from.
constexpr auto kSchedules = std::to_array<Entry>({
    {"one_stage", in_turn},
    {"model", in_turn},
    {"gpipe", [](int stages, int microbatches, int) { return gpipe_order(stages, microbatches); }},
    {"1f1b", [](int stages, int microbatches, int) { return one_forward_one_backward(stages, microbatches); }},
    {"interleaved", interleaved_order, Chunks::kSeveral},
    {"zero_bubble", [](int stages, int microbatches, int) { return zero_bubble_order(stages, microbatches); }},
    {"zb_v", [](int stages, int microbatches, int) { return zb_v_order(stages, microbatches); }, Chunks::kTwo,
     Placement::kV},
});
constexpr std::size_t kFirstPipeline = 2;

const Entry& schedule_entry(std::string_view name) {
  for (const Entry& entry : kSchedules) {
    if (entry.name == name) return entry;
  }
  fail_option("parallel.schedule", "'{}' is not a schedule ({})", name, fmt::join(schedule_names(), ", "));
}

void check_at_least_one(std::string_view key, int value) {
  if (value < 1) {
    fail_option(fmt::format("parallel.{}", key), "{1} is not a number of {0} (it must be at least 1)", key, value);
  }
}

void check_chunks(const Entry& entry, int chunks) {
  constexpr const char* kKey = "parallel.chunks";
  if (entry.chunks == Chunks::kTwo && chunks != 2) {
    fail_option(kKey, "{} has 2 chunks, not {}", entry.name, chunks);
  }
  if (entry.chunks == Chunks::kSeveral && chunks < 2) {
    fail_option(kKey, "{} needs at least 2 chunks, not {} (1f1b has 1)", entry.name, chunks);
  }
  if (entry.chunks == Chunks::kOne && chunks != 1) {
    fail_option(kKey, "{} has 1 chunk, not {} (interleaved has several)", entry.name, chunks);
  }
}

void check_numbers(const Entry& entry, int stages, int microbatches, int chunks) {
  check_at_least_one("stages", stages);
  check_at_least_one("microbatches", microbatches);
  check_at_least_one("chunks", chunks);
  check_chunks(entry, chunks);
  if (entry.name == "one_stage" && stages != 1) {
    fail_option("parallel.stages", "one_stage has 1 stage, not {} (gpipe and 1f1b have several)", stages);
  }
  if (entry.name == "model" && microbatches != 1) {
    fail_option("parallel.microbatches", "model has 1 microbatch, not {} (gpipe and 1f1b have several)", microbatches);
  }
  if (entry.chunks == Chunks::kSeveral && microbatches % stages != 0) {
    const int below = microbatches / stages * stages;
    const std::string good = below == 0 ? fmt::format("{}", stages) : fmt::format("{} or {}", below, below + stages);
    fail_option("parallel.microbatches", "{} needs a multiple of the {} stages, not {} ({})", entry.name, stages,
                microbatches, good);
  }
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
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> result;
    result.reserve(kSchedules.size());
    for (const Entry& entry : kSchedules) result.push_back(entry.name);
    return result;
  }();
  return names;
}

std::span<const std::string_view> pipeline_schedule_names() {
  return std::span<const std::string_view>(schedule_names()).subspan(kFirstPipeline);
}

int schedule_chunks(std::string_view name, int wanted) {
  switch (schedule_entry(name).chunks) {
    case Chunks::kOne: return 1;
    case Chunks::kTwo: return 2;
    case Chunks::kSeveral: break;
  }
  return wanted;
}

Schedule make_schedule(std::string_view name, int stages, int microbatches, int chunks) {
  const Entry& entry = schedule_entry(name);
  check_numbers(entry, stages, microbatches, chunks);
  Schedule schedule{.name = std::string(name),
                    .stages = stages,
                    .microbatches = microbatches,
                    .chunks = chunks,
                    .placement = entry.placement,
                    .actions = entry.order(stages, microbatches, chunks)};
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
