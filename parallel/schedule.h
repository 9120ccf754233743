// SPDX-License-Identifier: Apache-2.0
//
// The schedule of one training step, as data: for each stage the actions that its rank takes, in order. The
// executor runs it, others check, draw or simulate it; a parallel mode is nothing but its schedule and its
// mesh. Pure functions, no MPI, no device. Invariant: what these functions return passes check_schedule().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

enum class ActionKind : std::uint8_t {
  kForward,          ///< of one microbatch through the layers of one chunk, up to the loss on the last stage
  kBackward,         ///< of one microbatch through one chunk: gradients of inputs and weights
  kReduceGradients,  ///< finish the sum over replicas (it starts earlier, bucket by bucket)
  kOptimizerStep
};

/// kReduceGradients and kOptimizerStep concern the whole step, not one microbatch.
inline constexpr int kWholeStep = -1;

struct Action {
  ActionKind kind = ActionKind::kForward;
  int microbatch = kWholeStep;
  int chunk = 0;  ///< which of the stage's stretches of layers; 0 where a stage has one
  bool operator==(const Action& other) const = default;
};

struct Schedule {
  std::string name;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;                            ///< stretches of layers per stage
  std::vector<std::vector<Action>> actions;  ///< [stage][position]
};

/// F0 B0 F1 B1 ... Reduce Step: all layers on one rank, plain data parallelism; with several microbatches,
/// gradient accumulation. Activations of one microbatch are in flight.
[[nodiscard]] Schedule one_stage_schedule(int microbatches);

/// The most forwards of a stage that wait for their backward at one time: how many caches it needs.
[[nodiscard]] int activations_in_flight(const Schedule& schedule, int stage);

/// "F0", "B3", "F0.1" (chunk 1), "Reduce", "Step"
[[nodiscard]] std::string action_name(const Action& action);

}  // namespace convoy
