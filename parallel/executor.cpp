// SPDX-License-Identifier: Apache-2.0
#include "parallel/executor.h"

#include <array>
#include <chrono>

#include "layers/base/error.h"
#include "parallel/schedule_check.h"

namespace convoy {

namespace {

class Stopwatch {
 public:
  /// Seconds since the last call, or since the start.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    return passed.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Tensor channel_values(Backend& backend, const std::vector<float>& values, std::int64_t channels, const char* key) {
  if (values.size() != 1 && static_cast<std::int64_t>(values.size()) != channels) {
    fail_usage("data.{}: has {} values for images of {} channels (one value, or one per channel)", key, values.size(),
               channels);
  }
  std::vector<float> all(static_cast<std::size_t>(channels), values.front());
  if (values.size() > 1) all = values;
  Tensor tensor = backend.tensor({channels}, DType::kF32);
  backend.copy_from_host(all.data(), tensor);
  return tensor;
}

}  // namespace

Executor::Executor(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization,
                   Schedule schedule, Communicator* replicas, const Buckets& buckets)
    : model_(model),
      backend_(model.backend()),
      optimizer_(optimizer),
      loss_(loss),
      schedule_(std::move(schedule)),
      replicas_(replicas != nullptr && replicas->size() > 1 ? replicas : nullptr),
      buckets_(replicas_, model.parameters().gradients(), buckets.first_mb, buckets.mb) {
  check_schedule(schedule_);
  for (int i = 0; i < schedule_.microbatches; ++i) caches_.push_back(model.make_cache());
  doutputs_.resize(caches_.size());
  totals_ = backend_.tensor({3}, DType::kF64);
  if (model.input_shape().rank() == 4) {
    mean_ = channel_values(backend_, normalization.mean, model.input_shape()[1], "mean");
    std_ = channel_values(backend_, normalization.std, model.input_shape()[1], "std");
  }
}

Tensor Executor::load_inputs(const Batch& batch) {
  Tensor host_typed = backend_.tensor(batch.input_shape, batch.input_dtype);
  backend_.copy_from_host(batch.inputs, host_typed);
  if (batch.input_dtype == backend_.compute_type()) return host_typed;
  Tensor inputs = backend_.tensor(batch.input_shape, backend_.compute_type());
  if (batch.input_dtype == DType::kU8) {
    backend_.normalize_images(host_typed, mean_, std_, inputs);
  } else {
    backend_.cast(host_typed, inputs);
  }
  return inputs;
}

Tensor Executor::load_truth(const Batch& batch, const Tensor& outputs) {
  const bool labels = batch.labels != nullptr;
  Tensor truth = labels ? backend_.tensor({batch.samples}, DType::kI64) : backend_.tensor(outputs.shape(), DType::kF32);
  if (labels) {
    backend_.copy_from_host(batch.labels, truth);
  } else {
    backend_.copy_from_host(batch.targets, truth);
  }
  return truth;
}

LossTotals Executor::read_totals() {
  std::array<double, 3> host{};
  backend_.copy_to_host(totals_, host.data());
  return {host[0], host[1], host[2]};
}

LossTotals Executor::train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                                std::int64_t update) {
  if (microbatches.size() != caches_.size()) {
    fail("the step got {} microbatches and its schedule has {}", microbatches.size(), caches_.size());
  }
  phases_ = {};
  Stopwatch watch;
  backend_.zero(totals_);
  model_.parameters().begin_step();
  buckets_.begin_step();
  int forwards = 0;
  int backwards = 0;
  for (const Action& action : schedule_.actions.front()) {
    switch (action.kind) {
      case ActionKind::kForward:
        forward(microbatches[static_cast<std::size_t>(action.microbatch)], action.microbatch, global_samples);
        if (++forwards == schedule_.microbatches) start_statistics();
        phases_.forward += watch.lap();
        break;
      case ActionKind::kBackward:
        backward(action.microbatch, ++backwards == schedule_.microbatches);
        phases_.backward += watch.lap();
        break;
      case ActionKind::kReduceGradients:
        reduce_gradients();
        phases_.communication += watch.lap();
        break;
      case ActionKind::kOptimizerStep:
        optimizer_step(lr, update);
        phases_.optimizer += watch.lap();
        break;
    }
  }
  return read_totals();
}

void Executor::forward(const Batch& batch, int microbatch, std::int64_t global_samples) {
  Cache& cache = caches_[static_cast<std::size_t>(microbatch)];
  cache.share = static_cast<float>(static_cast<double>(batch.samples) / static_cast<double>(global_samples));
  const Tensor outputs = model_.forward(load_inputs(batch), cache, Mode::kTraining);
  Tensor& doutputs = doutputs_[static_cast<std::size_t>(microbatch)];
  doutputs = backend_.tensor(outputs.shape(), outputs.dtype());
  loss_.apply(backend_, outputs, load_truth(batch, outputs), global_samples, doutputs, totals_);
}

void Executor::backward(int microbatch, bool last) {
  Tensor doutputs = std::move(doutputs_[static_cast<std::size_t>(microbatch)]);
  model_.backward(doutputs, caches_[static_cast<std::size_t>(microbatch)], [&](std::int64_t final_elements) {
    if (last) buckets_.ready_up_to(final_elements);
    if (statistics_) statistics_->test();
  });
}

// The statistics of a step are complete after its last forward: their sum travels while backward runs.
void Executor::start_statistics() {
  const Tensor& statistics = model_.parameters().statistics();
  if (replicas_ != nullptr && statistics.size() > 0) {
    statistics_ = replicas_->all_reduce(statistics, ReduceOp::kSum, "batch-norm statistics");
  }
}

void Executor::reduce_gradients() {
  buckets_.finish();
  if (statistics_) {
    statistics_->wait();
    statistics_.reset();
  }
}

void Executor::optimizer_step(double lr, std::int64_t update) {
  optimizer_.step(lr, update);
  model_.parameters().update_running_statistics();
  model_.parameters().refresh_compute();
}

LossTotals Executor::evaluate(const Batch& batch) {
  if (batch.samples == 0) return {};
  backend_.zero(totals_);
  const Tensor outputs = model_.forward(load_inputs(batch), caches_.front(), Mode::kEvaluation);
  loss_.apply(backend_, outputs, load_truth(batch, outputs), 1, Tensor(), totals_);
  return read_totals();
}

}  // namespace convoy
