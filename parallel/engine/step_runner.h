// SPDX-License-Identifier: Apache-2.0
//
// The interface of training: one step and one evaluation batch of this rank. Implemented by the executor (schedules)
// and the scatter runner (one root). Every rank calls the same functions in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "layers/backend/backend.h"
#include "layers/base/batch.h"

namespace convoy {

/// Sums over the samples whose loss this rank computed; 0 on ranks that computed none.
struct LossTotals {
  double loss = 0;
  double first = 0;        ///< scores (layers/loss.h): top-1 correct, absolute errors, or outputs on the right side
  double second = 0;       ///< top-5 correct, squared errors, or samples all of whose outputs are
  bool nonfinite = false;  ///< the update has made a parameter of this rank infinite or NaN
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();  ///< before clipping; NaN: not computed
};

/// The totals of a step in the backend's memory: those of the losses (training_operations.h), the optimizer's flag, and
/// the norm of the gradients.
class StepTotals {
 public:
  explicit StepTotals(Backend& backend)
      : backend_(backend),
        all_(backend.tensor({5}, DType::kF64)),
        losses_(all_.view(0, {3})),
        nonfinite_(all_.view(3, {1})),
        gradient_norm_(all_.view(4, {1})) {}

  void clear() { backend_.zero(all_); }
  [[nodiscard]] const Tensor& losses() const { return losses_; }        ///< float64 [3]
  [[nodiscard]] const Tensor& nonfinite() const { return nonfinite_; }  ///< float64 [1]
  /// float64 [1]; set in this step if `found`.
  [[nodiscard]] const Tensor& gradient_norm() const { return gradient_norm_; }
  void set_gradient_norm_found(bool found) { norm_found_ = found; }
  [[nodiscard]] LossTotals read() const {
    std::array<double, 5> host{};
    backend_.copy_to_host(all_, host.data());
    LossTotals totals{host[0], host[1], host[2], host[3] != 0};
    if (norm_found_) totals.gradient_norm = host[4];
    return totals;
  }

 private:
  Backend& backend_;
  Tensor all_, losses_, nonfinite_, gradient_norm_;
  bool norm_found_ = false;
};

/// Phases of a step. The backward includes the start of reductions; the wait is for messages and reductions that are
/// not complete when they are needed. The last six belong to scatter mode.
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

/// Detects changes of the sample size.
class SampleShape {
 public:
  /// input: the shape of a microbatch of this step. True when its samples have another shape than in the previous step.
  bool changes_to(const Shape& input) {
    const Shape before = std::exchange(shape_, input.with_batch(1));
    return before.rank() > 0 && before != shape_;
  }

 private:
  Shape shape_;
};

class WeightAverage;

/// What a step does beside the update of the optimizer.
struct UpdateOptions {
  double clip_norm = 0;              ///< of GradientClip; 0: none
  WeightAverage* average = nullptr;  ///< of the weights; null: none
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  /// Work of the host while the device computes.
  using Meanwhile = std::function<void()>;

  /// One step over this replica's microbatches of a global batch of `global_samples`. No microbatch is empty; their
  /// data may be null where this rank needs none. update: number of optimizer updates before this one. meanwhile:
  /// called, if steps are recorded, after forward and backward have been launched and before the update, which waits
  /// for them where the loss is scaled. When the sample size differs from the previous step's, memory cached for that
  /// size is freed first.
  virtual LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                                std::int64_t update, const Meanwhile& meanwhile) = 0;
  /// Called within `meanwhile`: the microbatches of the next train_step(), to be copied to the device.
  virtual void preload(std::span<const Batch> microbatches) { static_cast<void>(microbatches); }
  /// Receives the outputs [n, K] of a microbatch, in the backend's memory.
  using TakeOutputs = std::function<void(const Batch& batch, const Tensor& outputs)>;
  /// Outputs for these microbatches in evaluation mode: calls `take` for each microbatch that is not empty, on the
  /// ranks of the last stage (in scatter mode on all). Labels and targets may be null.
  virtual void predict(std::span<const Batch> microbatches, const TakeOutputs& take) = 0;
  /// The same with the loss and the correct predictions. No gradients. `take` may be empty.
  virtual LossTotals evaluate(std::span<const Batch> microbatches, const TakeOutputs& take) = 0;
  /// Called before evaluations and checkpoints: distributes state that only one rank has.
  virtual void share_state() {}
  /// Phases of the last step.
  [[nodiscard]] virtual const Phases& phases() const = 0;
};

}  // namespace convoy
