// SPDX-License-Identifier: Apache-2.0
//
// What trains: one step and one evaluation batch, for this rank. The executor runs schedules, the scatter runner
// has one root. Every rank calls the same functions in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "layers/backend/backend.h"
#include "layers/base/batch.h"

namespace convoy {

/// Sums over the samples whose loss this rank computed; 0 on ranks that computed none.
struct LossTotals {
  double loss = 0, top1 = 0, top5 = 0;
};

/// Those that the losses have added to `totals`, float64 [3] (see Backend).
inline LossTotals read_totals(Backend& backend, const Tensor& totals) {
  std::array<double, 3> host{};
  backend.copy_to_host(totals, host.data());
  return {host[0], host[1], host[2]};
}

/// What the time of a step goes into. Backward includes the reductions started within it; the wait is for messages and
/// reductions that are not there when they are needed. The last six belong to scatter mode.
enum class Phase {
  kForward,
  kBackward,
  kCommunicationWait,
  kOptimizer,
  kScatter,
  kBroadcast,
  kGather,
  kLoss,
  kScatterGradients,
  kReduce
};
inline constexpr std::array<std::string_view, 10> kPhaseNames{
    "forward", "backward", "communication_wait", "optimizer", "scatter", "broadcast",
    "gather",  "loss",     "scatter_gradients",  "reduce"};

/// Seconds of one step on this rank, by Phase.
struct Phases {
  std::array<double, kPhaseNames.size()> seconds{};
  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
};

/// Notices when samples change their size.
class SampleShape {
 public:
  /// input: of a microbatch of this step. Whether its samples have another shape than those of the step before.
  bool changes_to(const Shape& input) {
    const Shape before = std::exchange(shape_, input.with_batch(1));
    return before.rank() > 0 && before != shape_;
  }

 private:
  Shape shape_;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// What the host does while the device works.
  using Meanwhile = std::function<void()>;

  /// One step over this replica's microbatches (none empty; their memory may be null where this rank needs none) of a
  /// global batch of `global_samples`. update: optimizer updates before this one. meanwhile: called, where the device
  /// works by itself, once all work has been started and before its result is waited for. A step whose samples have
  /// another size than those of the step before it begins by giving back the memory that is kept for that size.
  virtual LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                                std::int64_t update, const Meanwhile& meanwhile) = 0;
  /// Within `meanwhile`: the microbatches of the next train_step(), to be copied to the device.
  virtual void preload(std::span<const Batch> microbatches) { static_cast<void>(microbatches); }
  /// Loss and correct predictions of these microbatches with the running statistics; no gradients. Some may be empty.
  virtual LossTotals evaluate(std::span<const Batch> microbatches) = 0;
  /// Before evaluations and checkpoints: what only one rank has is brought to those that need it.
  virtual void share_state() {}
  /// Of the last step.
  [[nodiscard]] virtual const Phases& phases() const = 0;
};

}  // namespace convoy
