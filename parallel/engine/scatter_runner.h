// SPDX-License-Identifier: Apache-2.0
//
// Data parallelism from one root, as in torch.nn.DataParallel: only rank 0 has the data, the loss and the optimizer.
// Each step broadcasts the parameters, scatters the inputs, gathers the outputs, scatters the gradients of the outputs
// and reduces those of the parameters. It is the baseline for the executor's data parallelism, with the same results.
// Invariant: between steps only the root's parameters are current.
#pragma once

#include <cstdint>
#include <span>

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
  /// `all`: every rank; rank 0 is the root. `model`: the entire model. All references must outlive this.
  ScatterRunner(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization,
                Communicator& all, LossScaler& scaler);

  /// microbatches: one, the global batch, of which only the root needs the data. The number of samples must be a
  /// multiple of the ranks.
  LossTotals train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                        std::int64_t update, const Meanwhile& meanwhile) override;
  /// microbatches: this rank's; each rank evaluates its share.
  LossTotals evaluate(std::span<const Batch> microbatches) override;
  /// Broadcasts the root's parameters and running statistics.
  void share_state() override;
  [[nodiscard]] const Phases& phases() const override { return phases_; }

 private:
  [[nodiscard]] bool is_root() const { return all_.rank() == 0; }
  void lap(Phase phase);
  void broadcast(const Tensor& tensor, const char* what);
  RawInputs scatter_inputs(const Batch& batch);
  Tensor loss_gradient(const Batch& batch, const Tensor& outputs);

  Model& model_;
  Backend& backend_;
  Optimizer& optimizer_;
  Loss loss_;
  BatchTransfer transfer_;
  Communicator& all_;
  LossScaler& scaler_;
  DeviceLossScale loss_scale_;
  Cache cache_;
  SampleShape sample_;
  StepTotals totals_;
  Phases phases_;
  Stopwatch watch_;
};

}  // namespace convoy
