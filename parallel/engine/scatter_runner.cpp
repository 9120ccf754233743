// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/scatter_runner.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "layers/base/error.h"
#include "layers/base/trace.h"
#include "layers/optim/weight_average.h"

namespace convoy {

ScatterRunner::ScatterRunner(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization,
                             Communicator& all, LossScaler& scaler, const UpdateOptions& update)
    : model_(model),
      backend_(model.backend()),
      optimizer_(optimizer),
      loss_(loss),
      transfer_(backend_, model.input_shape(), model.input_channels(), normalization, loss.label_smoothing),
      all_(all),
      scaler_(scaler),
      loss_scale_(backend_, scaler.enabled()),
      clip_(update.clip_norm, model),
      average_(update.average),
      cache_(model.make_cache()),
      totals_(backend_) {}

void ScatterRunner::lap(Phase phase) {
  const double seconds = watch_.lap();
  phases_[phase] += seconds;
  if (!trace::enabled()) return;
  const bool computes = phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kOptimizer;
  const double end = trace::now();
  trace::record(computes ? trace::Track::kCompute : trace::Track::kReduce,
                std::string(kPhaseNames[static_cast<std::size_t>(phase)]), end - seconds, end);
}

void ScatterRunner::broadcast(const Tensor& tensor, const char* what) {
  if (tensor.size() > 0) all_.broadcast(tensor, 0, what)->wait();
}

// Parts of a mixed batch overlap: each begins with the partner of its first sample.
RawInputs ScatterRunner::scatter_inputs(const Batch& batch) {
  const std::int64_t samples = batch.samples / all_.size(), images = samples + (batch.mixing ? 1 : 0);
  RawInputs part{backend_.tensor(batch.input_shape.with_batch(images), batch.input_dtype), {}, {}, {}};
  Tensor whole;
  if (is_root() && !batch.mixing) {
    whole = backend_.tensor(batch.input_shape, batch.input_dtype);
    backend_.copy_from_host(batch.inputs, whole);
  } else if (is_root()) {
    whole = backend_.tensor(batch.input_shape.with_batch(images * all_.size()), batch.input_dtype);
    const auto* first = static_cast<const std::byte*>(batch.inputs);
    const std::size_t step =
        part.samples.bytes() / static_cast<std::size_t>(images) * static_cast<std::size_t>(samples);
    for (std::int64_t rank = 0; rank < all_.size(); ++rank) {
      backend_.copy_from_host(first + static_cast<std::size_t>(rank) * step,
                              whole.view(rank * part.samples.size(), part.samples.shape()));
    }
  }
  all_.scatter(whole, part.samples, 0, "inputs")->wait();
  transfer_.load_changes(batch, all_.rank() * samples, samples, part);
  return part;
}

// On the root: adds to the totals, and gives the gradient of all outputs.
Tensor ScatterRunner::loss_gradient(const Batch& batch, const Tensor& outputs) {
  Tensor doutputs = backend_.tensor(outputs.shape(), outputs.dtype());
  loss_scale_.set(scaler_.scale());
  loss_.apply(backend_, outputs, transfer_.targets(batch, outputs.shape()), batch.samples, doutputs, totals_.losses(),
              loss_scale_.tensor(), batch.class_weights.has_value());
  return doutputs;
}

LossTotals ScatterRunner::train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                                     std::int64_t update, const Meanwhile& /*meanwhile*/) {
  const Batch& batch = microbatches.front();
  if (microbatches.size() != 1 || batch.samples != global_samples || global_samples % all_.size() != 0) {
    fail("scatter mode takes the batch of {} samples as one, in equal parts for {} ranks", global_samples, all_.size());
  }
  phases_ = {};
  watch_.lap();
  if (sample_.changes_to(batch.input_shape)) backend_.pool().release_free();
  ParameterStore& store = model_.parameters();
  totals_.clear();
  store.begin_step();

  broadcast(store.learned_values(), "parameters");
  if (!is_root()) store.refresh_learned();
  lap(Phase::kBroadcast);
  const RawInputs part = scatter_inputs(batch);
  lap(Phase::kScatter);

  cache_.share = 1.0F / static_cast<float>(all_.size());
  model_.set_position(cache_, update, batch.first_position + all_.rank() * (batch.samples / all_.size()));
  const Tensor outputs = model_.forward(transfer_.inputs(part), cache_, Mode::kTraining);
  lap(Phase::kForward);
  Tensor all_outputs, all_doutputs;
  if (is_root()) all_outputs = backend_.tensor(outputs.shape().with_batch(global_samples), outputs.dtype());
  all_.gather(outputs, all_outputs, 0, "outputs")->wait();
  lap(Phase::kGather);
  if (is_root()) all_doutputs = loss_gradient(batch, all_outputs);
  lap(Phase::kLoss);
  const Tensor doutputs = backend_.tensor(outputs.shape(), outputs.dtype());
  all_.scatter(all_doutputs, doutputs, 0, "gradients of the outputs")->wait();
  lap(Phase::kScatterGradients);

  model_.backward(doutputs, cache_, [](std::int64_t) {});
  lap(Phase::kBackward);
  all_.reduce(store.gradients(), ReduceOp::kSum, 0, "gradients")->wait();
  if (store.statistics().size() > 0) {
    all_.reduce(store.statistics(), ReduceOp::kSum, 0, "batch-norm statistics")->wait();
  }
  lap(Phase::kReduce);
  if (is_root()) {
    const bool finite = scaler_.unscale(backend_, store.gradients());
    totals_.set_gradient_norm_found(clip_.enabled() && finite);
    if (finite) {
      clip_gradients();
      optimizer_.step(lr, update, totals_.nonfinite());
    }
    scaler_.finish(finite, update);
    store.update_running_statistics();
    if (average_ != nullptr) average_->update(update);
    store.refresh_learned();
  }
  lap(Phase::kOptimizer);
  return totals_.read();
}

void ScatterRunner::clip_gradients() {
  if (!clip_.enabled()) return;
  static_cast<void>(clip_.measure());
  clip_.find_factor(totals_.gradient_norm());
  clip_.scale(model_.parameters().gradients());
}

void ScatterRunner::predict(std::span<const Batch> microbatches, const TakeOutputs& take) {
  for (const Batch& batch : microbatches) {
    if (batch.samples == 0) continue;
    take(batch, model_.forward(transfer_.inputs(batch), cache_, Mode::kEvaluation));
  }
}

LossTotals ScatterRunner::evaluate(std::span<const Batch> microbatches, const TakeOutputs& take) {
  totals_.clear();
  predict(microbatches, [&](const Batch& batch, const Tensor& outputs) {
    loss_.apply(backend_, outputs, transfer_.targets(batch, outputs.shape()), 1, Tensor(), totals_.losses());
    if (take) take(batch, outputs);
  });
  return totals_.read();
}

void ScatterRunner::share_state() {
  ParameterStore& store = model_.parameters();
  broadcast(store.values(), "parameters");
  broadcast(store.running(), "running statistics");
  if (!is_root()) store.refresh_compute();
}

}  // namespace convoy
