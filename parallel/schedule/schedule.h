// SPDX-License-Identifier: Apache-2.0
//
// The schedule of one training step, as data: for each stage the actions of its rank, in order. The executor runs it,
// the simulator times it, schedule_print draws it. A parallel mode is its schedule and its mesh. Pure functions, no
// MPI, no device. Invariant: what make_schedule() returns passes check_schedule().
//
// The model is split into stages * chunks contiguous ranges of layers, the virtual stages 0, 1, ...; each rank of a
// replica (a stage) holds `chunks` of them. Microbatches go forward through the virtual stages in order, gradients
// backward. On each chunk backwards come in microbatch order, so sums of gradients do not depend on the schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

enum class ActionKind : std::uint8_t {
  kForward,            ///< of one microbatch through one chunk, up to the loss on the last virtual stage
  kBackward,           ///< of one microbatch through one chunk: gradients of inputs and weights
  kBackwardInput,      ///< the first half of that: what the stage before waits for
  kBackwardWeight,     ///< the second half, at any time after the first
  kSendActivation,     ///< start sending this chunk's output to the holder of the next virtual stage
  kReceiveActivation,  ///< start receiving this chunk's input; the forward that needs it waits
  kSendGradient,       ///< start sending the gradient of this chunk's input to the virtual stage before
  kReceiveGradient,    ///< start receiving the gradient of this chunk's output; the backward waits
  kReduceGradients,    ///< finish the sum over replicas (it starts earlier, bucket by bucket)
  kOptimizerStep
};

/// kReduceGradients and kOptimizerStep concern the whole step, not one microbatch.
inline constexpr int kWholeStep = -1;

struct Action {
  ActionKind kind = ActionKind::kForward;
  int microbatch = kWholeStep;
  int chunk = 0;  ///< the model chunk within the stage
  bool operator==(const Action& other) const = default;
};

/// Forward, backward or half a backward: what takes a device's time.
[[nodiscard]] bool is_compute(ActionKind kind);
/// A send or a receive.
[[nodiscard]] bool is_communication(ActionKind kind);

/// Which rank holds which virtual stage.
enum class Placement : std::uint8_t {
  kLoop,  ///< virtual stage = chunk * stages + stage: round and round
  kV      ///< two chunks: down the ranks and up again, so that the first rank holds both ends
};

struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;  ///< model chunks per stage
  Placement placement = Placement::kLoop;
  std::vector<std::vector<Action>> actions;  ///< [stage][position]

  [[nodiscard]] int virtual_stages() const { return stages * chunks; }
  [[nodiscard]] int virtual_stage(int stage, int chunk) const;
  [[nodiscard]] int stage_of(int virtual_stage) const;
  [[nodiscard]] int chunk_of(int virtual_stage) const;
};

/// The names that make_schedule() takes: one_stage, model, gpipe, 1f1b, interleaved, zero_bubble, zb_v.
[[nodiscard]] const std::vector<std::string_view>& schedule_names();
/// Those of several stages, which parallel.schedule chooses from.
[[nodiscard]] std::span<const std::string_view> pipeline_schedule_names();
/// The chunks per stage of that schedule, where `wanted` are asked for.
[[nodiscard]] int schedule_chunks(std::string_view name, int wanted);

/// The schedule of that name with its sends and receives, checked. Throws an OptionError that says what would do when
/// the numbers do not suit it: one_stage has one stage, model one microbatch, interleaved at least two chunks and
/// microbatches in multiples of the stages, zb_v two chunks; all others one chunk.
///   one_stage     F0 B0 F1 B1 ...: gradient accumulation
///   model         one microbatch through all stages
///   gpipe         all forwards, then all backwards (Huang et al. 2019)
///   1f1b          one forward, one backward in turn (Narayanan et al. 2019, PipeDream-flush)
///   interleaved   1f1b over several chunks per rank (Narayanan et al. 2021, Megatron-LM)
///   zero_bubble   ZB-H1: backward halves apart, 1f1b's memory (Qi et al. 2024, "Zero Bubble Pipeline Parallelism")
///   zb_v          two chunks in V placement, no bubble (Qi et al. 2024, "Pipeline Parallelism with Controllable
///   Memory")
[[nodiscard]] Schedule make_schedule(std::string_view name, int stages, int microbatches, int chunks);

/// The forwards of a schedule and what they send, for evaluation: no backwards, no reduction, no step.
[[nodiscard]] Schedule forward_only(const Schedule& schedule);

/// The most forwards of a stage, over all of its chunks, whose (last half of) backward is still to come: how many
/// caches it needs.
[[nodiscard]] int activations_in_flight(const Schedule& schedule, int stage);

/// "F0", "B3", "F0.1" (chunk 1), "I2", "W2" (the halves of a backward), "Reduce", "Step"; sends and receives "SA0",
/// "RA0", "SG0", "RG0"
[[nodiscard]] std::string action_name(const Action& action);

}  // namespace convoy
