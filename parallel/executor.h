// SPDX-License-Identifier: Apache-2.0
//
// Runs a schedule: one training step, action by action, for this rank's stage and replica; and evaluation. Owns the
// caches of the microbatches in flight. Gradients are scaled by the global batch at the loss, so replicas and
// microbatches only sum. Invariant: after the first step a step allocates no backend memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/batch.h"
#include "layers/loss.h"
#include "layers/model.h"
#include "layers/optimizer.h"
#include "parallel/communicator.h"
#include "parallel/gradient_buckets.h"
#include "parallel/schedule.h"

namespace convoy {

/// Sums over this rank's samples.
struct LossTotals {
  double loss = 0, top1 = 0, top5 = 0;
};

/// Seconds of one step on this rank. Backward includes the reductions started within it; communication is waiting only.
struct StepPhases {
  double forward = 0, backward = 0, communication = 0, optimizer = 0;
};

class Executor {
 public:
  struct Buckets {
    double first_mb = 1, mb = 25;
  };

  /// replicas: the ranks that hold this stage's other replicas, may be null for one. All references must outlive this.
  Executor(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization, Schedule schedule,
           Communicator* replicas, const Buckets& buckets);

  /// One step over this replica's microbatches (as many as the schedule has, none empty) of a global batch of
  /// `global_samples`. Every replica calls it. update: optimizer updates before this one.
  LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                        std::int64_t update);
  [[nodiscard]] const StepPhases& phases() const { return phases_; }

  /// Loss and hits of a batch with the running statistics; no gradients. Samples may be 0. Local to this rank.
  LossTotals evaluate(const Batch& batch);

 private:
  void forward(const Batch& batch, int microbatch, std::int64_t global_samples);
  void backward(int microbatch, bool last);
  void start_statistics();
  void reduce_gradients();
  void optimizer_step(double lr, std::int64_t update);
  Tensor load_inputs(const Batch& batch);
  Tensor load_truth(const Batch& batch, const Tensor& outputs);
  LossTotals read_totals();

  Model& model_;
  Backend& backend_;
  Optimizer& optimizer_;
  Loss loss_;
  Schedule schedule_;
  Communicator* replicas_;
  GradientBuckets buckets_;
  std::vector<Cache> caches_;     // one per microbatch
  std::vector<Tensor> doutputs_;  // gradient at the end of the network, per microbatch
  Pending statistics_;            // reduction of the batch-norm statistics
  Tensor mean_, std_;             // float32 [C], of uint8 images
  Tensor totals_;                 // float64 [3], sums of the step or of one evaluation batch
  StepPhases phases_;
};

}  // namespace convoy
