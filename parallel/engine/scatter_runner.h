// SPDX-License-Identifier: Apache-2.0
//
// Data parallelism from one root, as torch.nn.DataParallel does it: rank 0 alone has the data, the loss and the
// optimizer. Every step it broadcasts the parameters, scatters the inputs, gathers the outputs, scatters the gradients
// of the outputs and reduces those of the parameters. The baseline that the executor's data parallelism is measured
// against; the numbers are the same. Invariant: between steps only the root's parameters are current.
#pragma once

#include "layers/base/stopwatch.h"
#include "layers/loss.h"
#include "layers/model.h"
#include "layers/optim/loss_scaler.h"
#include "layers/optim/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/engine/batch_transfer.h"
#include "parallel/engine/step_runner.h"

namespace convoy {

class ScatterRunner final : public StepRunner {
 public:
  /// `all`: every rank, the root is rank 0. `model` is whole. All references must outlive this.
  ScatterRunner(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization,
                Communicator& all, LossScaler& scaler);

  /// microbatches: one, the whole global batch, whose memory only the root needs to have. Its samples must be a
  /// multiple of the ranks.
  LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                        std::int64_t update, const Meanwhile& meanwhile) override;
  /// microbatches: this rank's own; each rank evaluates its share by itself.
  LossTotals evaluate(std::span<const Batch> microbatches) override;
  /// The root's parameters and running statistics on every rank.
  void share_state() override;
  [[nodiscard]] const Phases& phases() const override { return phases_; }

 private:
  [[nodiscard]] bool is_root() const { return all_.rank() == 0; }
  void lap(Phase phase);
  void broadcast(const Tensor& tensor, const char* what);
  Tensor scatter_inputs(const Batch& batch);
  Tensor loss_gradient(const Batch& batch, const Tensor& outputs);

  Model& model_;
  Backend& backend_;
  Optimizer& optimizer_;
  Loss loss_;
  BatchTransfer transfer_;
  Communicator& all_;
  LossScaler& scaler_;
  Cache cache_;
  SampleShape sample_;
  Tensor totals_;  // float64 [3]
  Phases phases_;
  Stopwatch watch_;
};

}  // namespace convoy
