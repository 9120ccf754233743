// SPDX-License-Identifier: Apache-2.0
//
// Runs a schedule: the actions of a training step of this rank's stage and replica, and evaluation (forwards through
// the same stages). Owns the caches of the microbatches in flight. The loss is scaled by the global batch size, so
// gradients of replicas and microbatches are summed. Invariant: after the first step of an image size, steps allocate
// no device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layers/base/stopwatch.h"
#include "layers/loss.h"
#include "layers/model.h"
#include "layers/optim/gradient_clip.h"
#include "layers/optim/loss_scaler.h"
#include "layers/optim/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/engine/batch_transfer.h"
#include "parallel/engine/gradient_buckets.h"
#include "parallel/engine/parameter_gather.h"
#include "parallel/engine/replay.h"
#include "parallel/engine/sharded_head.h"
#include "parallel/engine/stage_link.h"
#include "parallel/engine/step_recording.h"
#include "parallel/engine/step_runner.h"
#include "parallel/schedule/schedule.h"

namespace convoy {

class Executor final : public StepRunner {
 public:
  struct Buckets {
    double first_mb = 1, mb = 25;
  };
  /// Communicators of this rank; they outlive the executor. Either may be null when it would have one rank.
  struct Coordinates {
    int stage = 0;
    Communicator* stages = nullptr;    ///< the stages of this replica, by rank
    Communicator* replicas = nullptr;  ///< the ranks that hold this stage's other replicas
    ShardedHead* head = nullptr;       ///< that of the model, over `replicas`; null: each replica has the whole
  };

  /// `model` holds the chunks of this stage. All references must outlive this. record: see StepRecording; used when one
  /// stage holds the entire model. replay: computes steps twice when they are due; may be null.
  Executor(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization, Schedule schedule,
           const Coordinates& coordinates, const Buckets& buckets, LossScaler& scaler,
           StepRecording::Record record = {}, Replay* replay = nullptr, const UpdateOptions& update = {});

  LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                        std::int64_t update, const Meanwhile& meanwhile) override;
  void preload(std::span<const Batch> microbatches) override;
  void predict(std::span<const Batch> microbatches, const TakeOutputs& take) override;
  LossTotals evaluate(std::span<const Batch> microbatches, const TakeOutputs& take) override;
  /// Replicas with a sharded optimizer may still be gathering the parameters of the last update.
  void share_state() override { gather_.finish(); }
  [[nodiscard]] const Phases& phases() const override { return phases_; }

 private:
  /// A step without the optimizer update.
  void compute_gradients();
  void finish_before_reduce();
  void compute_gradients_twice();
  [[nodiscard]] bool replaying() const { return replay_ != nullptr && replay_->active(); }
  void run(const Action& action);
  /// Before action i of a list, where that is the first message behind a computation: see StageLink::make_room.
  static void make_room(StageLink& link, std::span<const Action> actions, std::size_t i,
                        std::span<const Batch> batches);
  Tensor inputs(int microbatch, const Batch& batch);
  Tensor evaluation_inputs(const Batch& batch);
  Tensor targets(int microbatch, const Batch& batch, const Shape& outputs);
  void forward(const Action& action, const Batch& batch);
  void apply_loss(const Action& action, const Batch& batch, const Tensor& outputs);
  void add_loss(const Batch& batch, const Tensor& outputs, const Tensor& targets, std::int64_t global_samples,
                const Tensor& doutputs, const Tensor& loss_scale);
  void backward(const Action& action);
  void weights_done(const Action& action, std::int64_t elements);
  void start_statistics();
  void reduce_gradients();
  void clip_gradients();
  void optimizer_step();
  void update_parameters();
  [[nodiscard]] Tensor reduced_gradients();
  /// Whether replicas have different gradients when a step has reduced them.
  [[nodiscard]] bool shards_gradients() const { return gather_.enabled() || coordinates_.head != nullptr; }
  void progress();
  void lap(Phase phase);
  Cache& cache(int microbatch) { return caches_[static_cast<std::size_t>(microbatch)]; }

  Model& model_;
  Backend& backend_;
  Optimizer& optimizer_;
  Loss loss_;
  BatchTransfer transfer_;
  Schedule schedule_, evaluation_;
  Coordinates coordinates_;
  GradientBuckets buckets_;
  ParameterGather gather_;
  StageLink link_, evaluation_link_;
  LossScaler& scaler_;
  DeviceLossScale loss_scale_;
  StepRecording recording_;
  Replay* replay_;  // null: none
  GradientClip clip_;
  WeightAverage* average_;  // null: none
  SampleShape sample_;
  std::vector<LoadedBatch> loaded_;  // by microbatch, where steps are recorded: always at the same coordinates
  bool preloaded_ = false;           // they are those of the next step
  std::vector<Cache> caches_;        // one per microbatch, for all chunks
  std::vector<std::int64_t> done_;   // per chunk: its gradients before this element are final
  Pending statistics_;               // reduction of the batch-norm statistics
  StepTotals totals_;                // of the step, or the losses of one evaluation batch
  Phases phases_;
  Stopwatch watch_;
  std::span<const Batch> batches_;  // these four: of the step under way
  std::int64_t global_samples_ = 0, update_ = 0;
  double lr_ = 0;
  int forwards_left_ = 0;
};

}  // namespace convoy
