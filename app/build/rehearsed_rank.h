// SPDX-License-Identifier: Apache-2.0
//
// A rank of a rehearsal (layers/base/rehearsal.h): the run's own model, optimizer and schedule on a backend that
// carries nothing out, and batches without data. For predictions of memory and for counts of what a step moves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/build/memory_prediction.h"
#include "layers/base/batch.h"
#include "layers/model.h"
#include "layers/optim/loss_scaler.h"
#include "layers/optim/optimizer.h"
#include "layers/optim/weight_average.h"
#include "parallel/comm/rehearsal_communicator.h"
#include "parallel/comm/statistics_reducer.h"
#include "parallel/engine/replay.h"
#include "parallel/engine/sharded_head.h"
#include "parallel/engine/step_runner.h"

namespace convoy {

/// [n, C, H, W] or [n, F] of so many samples of this shape.
[[nodiscard]] Shape batch_shape(const Shape& sample, std::int64_t samples);

class RehearsedRank {
 public:
  /// Makes the model. The request and the backend outlive this, and so does a Rehearsal.
  RehearsedRank(const MemoryRequest& request, Backend& backend, bool scales_loss);
  [[nodiscard]] Model& model() { return model_; }

  /// Before steps: these two in turn.
  Optimizer& make_optimizer();
  void make_runner();

  void train_step();
  void evaluate();

 private:
  [[nodiscard]] std::int64_t microbatch() const;

  const MemoryRequest& request_;
  int stage_;
  RehearsalCommunicator stages_, replicas_, all_;
  CommunicatorStatisticsReducer reducer_;
  std::unique_ptr<ShardedHead> head_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  LossScaler scaler_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<Replay> replay_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace convoy
