// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/executor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/profile_range.h"
#include "layers/base/trace.h"
#include "layers/optim/weight_average.h"
#include "parallel/schedule/schedule_check.h"

namespace convoy {

namespace {

Communicator* several(Communicator* communicator) {
  return communicator != nullptr && communicator->size() > 1 ? communicator : nullptr;
}

const char* phase_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return "forward";
    case ActionKind::kReduceGradients: return "reduce gradients";
    case ActionKind::kOptimizerStep: return "optimizer";
    default: return "backward";
  }
}

// "the input of microbatch 2" of a chunk, for reports.
std::string at(const std::string& what, const Action& action) {
  return fmt::format("{} (microbatch {}, chunk {})", what, action.microbatch, action.chunk);
}

// Behind those of a sharded head, which are complete without a reduction.
Tensor replicated_gradients(ParameterStore& store) {
  const Tensor& all = store.gradients();
  const std::int64_t sharded = store.sharded_elements();
  return sharded == 0 ? all : all.view(sharded, {all.size() - sharded});
}

// The gradients whose squares this replica counts for all: those of a sharded head are counted by each, all others
// once.
std::int64_t clip_end(const Optimizer& optimizer, ParameterStore& store, const Communicator* replicas) {
  const std::int64_t sharded = store.sharded_elements();
  return sharded > 0 && replicas != nullptr && replicas->rank() > 0 ? sharded : optimizer.shard_end();
}

trace::Track track(ActionKind kind) {
  return kind == ActionKind::kReduceGradients ? trace::Track::kWait : trace::Track::kCompute;
}

}  // namespace

Executor::Executor(Model& model, Optimizer& optimizer, const Loss& loss, const Normalization& normalization,
                   Schedule schedule, const Coordinates& coordinates, const Buckets& buckets, LossScaler& scaler,
                   StepRecording::Record record, Replay* replay, const UpdateOptions& update)
    : model_(model),
      backend_(model.backend()),
      optimizer_(optimizer),
      loss_(loss),
      transfer_(backend_, model.input_shape(), model.input_channels(), normalization, loss.label_smoothing,
                coordinates.head != nullptr),
      schedule_(std::move(schedule)),
      evaluation_(forward_only(schedule_)),
      coordinates_{coordinates.stage, several(coordinates.stages), several(coordinates.replicas), coordinates.head},
      buckets_(coordinates_.replicas, replicated_gradients(model.parameters()), buckets.first_mb, buckets.mb,
               optimizer.shard_bounds()),
      gather_(coordinates_.replicas, model.parameters(), optimizer.shard_bounds(), buckets.mb),
      link_(coordinates_.stages, schedule_, coordinates.stage, model),
      evaluation_link_(coordinates_.stages, evaluation_, coordinates.stage, model),
      scaler_(scaler),
      loss_scale_(backend_, scaler.enabled()),
      recording_(schedule_.virtual_stages() == 1 ? std::move(record) : StepRecording::Record()),
      replay_(replay),
      clip_(update.clip_norm, model, optimizer.shard_begin(),
            clip_end(optimizer, model.parameters(), coordinates_.replicas)),
      average_(update.average),
      totals_(backend_) {
  check_schedule(schedule_);
  if (static_cast<std::size_t>(schedule_.chunks) != model.chunks().size()) {
    fail("the schedule has {} chunks and the model {}", schedule_.chunks, model.chunks().size());
  }
  for (const auto& actions : schedule_.actions) {
    if (actions.back().kind != ActionKind::kOptimizerStep) fail("a stage of the schedule does not end with its update");
  }
  for (int i = 0; i < schedule_.microbatches; ++i) caches_.push_back(model.make_cache());
  done_.resize(static_cast<std::size_t>(schedule_.chunks));
  finish_before_reduce();
}

LossTotals Executor::train_step(std::span<const Batch> microbatches, std::int64_t global_samples, double lr,
                                std::int64_t update, const Meanwhile& meanwhile) {
  if (microbatches.size() != caches_.size()) {
    fail("the step got {} microbatches and its schedule has {}", microbatches.size(), caches_.size());
  }
  phases_ = {};
  watch_.lap();
  global_samples_ = global_samples;
  lr_ = lr;
  update_ = update;
  batches_ = microbatches;
  if (sample_.changes_to(microbatches.front().input_shape)) {
    recording_.forget();
    backend_.pool().release_free();
  }
  loss_scale_.set(scaler_.scale());
  StepRecording::Key kind{static_cast<double>(global_samples)};
  if (recording_.enabled()) {
    if (!preloaded_) preload(microbatches);
    preloaded_ = false;
    for (const Batch& batch : microbatches) kind.push_back(static_cast<double>(batch.samples));
  }
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    model_.set_position(caches_[i], update, microbatches[i].first_position);
  }
  if (replay_ != nullptr && replay_->due(update)) {
    compute_gradients_twice();
  } else {
    recording_.run(kind, [this] { compute_gradients(); });
  }
  lap(Phase::kBackward);
  if (recording_.enabled() && meanwhile) {
    meanwhile();
    watch_.lap();  // the wait for data is counted by who waits
  }
  run(schedule_.actions[static_cast<std::size_t>(coordinates_.stage)].back());
  link_.finish();
  lap(Phase::kCommunicationWait);
  if (replay_ != nullptr) replay_->end_step(update);
  return totals_.read();
}

void Executor::preload(std::span<const Batch> microbatches) {
  loaded_.resize(microbatches.size());
  for (std::size_t i = 0; i < microbatches.size(); ++i) {
    transfer_.load(microbatches[i], model_.units().back().output, loaded_[i]);
  }
  preloaded_ = true;
}

void Executor::compute_gradients_twice() {
  const auto final = [this](std::int64_t begin, std::int64_t end) {
    backend_.finish_gradients();
    replay_->gradients_final(begin, end);
  };
  if (coordinates_.replicas != nullptr) buckets_.set_before_reduce(final);
  for (const int pass : {0, 1}) {
    replay_->begin_pass(pass);
    compute_gradients();
    link_.finish();
    if (coordinates_.replicas == nullptr) final(0, model_.parameters().gradients().size());
    replay_->end_pass(coordinates_.replicas != nullptr, totals_.losses());
  }
  finish_before_reduce();
}

// Gradients are complete before their reduction.
void Executor::finish_before_reduce() {
  buckets_.set_before_reduce([this](std::int64_t, std::int64_t) { backend_.finish_gradients(); });
}

void Executor::compute_gradients() {
  totals_.clear();
  model_.parameters().begin_step();
  buckets_.begin_step();
  forwards_left_ = schedule_.microbatches * schedule_.chunks;
  for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
    done_[static_cast<std::size_t>(chunk)] = model_.chunk_begin(chunk);
  }
  const auto& actions = schedule_.actions[static_cast<std::size_t>(coordinates_.stage)];
  for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
    make_room(link_, actions, i, batches_);
    run(actions[i]);
  }
}

void Executor::make_room(StageLink& link, std::span<const Action> actions, std::size_t i,
                         std::span<const Batch> batches) {
  if (i == 0 || !is_communication(actions[i - 1].kind)) link.make_room(actions.subspan(i), batches);
}

void Executor::run(const Action& action) {
  if (is_communication(action.kind)) {
    link_.start(action);
    return;
  }
  const trace::Span span(track(action.kind), trace::enabled() ? action_name(action) : std::string());
  const ProfileRange range(phase_name(action.kind));
  switch (action.kind) {
    case ActionKind::kForward:
      forward(action, batches_[static_cast<std::size_t>(action.microbatch)]);
      if (--forwards_left_ == 0) start_statistics();
      return lap(Phase::kForward);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight: backward(action); return lap(Phase::kBackward);
    case ActionKind::kReduceGradients: reduce_gradients(); return lap(Phase::kCommunicationWait);
    case ActionKind::kOptimizerStep: optimizer_step(); return lap(Phase::kOptimizer);
    default: fail("the executor cannot run {}", action_name(action));
  }
}

// Time spent waiting for messages within an action is counted apart from its work.
void Executor::lap(Phase phase) {
  const double waited = link_.take_waited() + gather_.take_waited();
  phases_[Phase::kCommunicationWait] += waited;
  phases_[phase] += watch_.lap() - waited;
}

void Executor::progress() {
  link_.progress();
  gather_.progress();
  buckets_.progress();
  if (statistics_) statistics_->test();
}

void Executor::forward(const Action& action, const Batch& batch) {
  Cache& kept = cache(action.microbatch);
  kept.share = static_cast<float>(static_cast<double>(batch.samples) / static_cast<double>(global_samples_));
  const Tensor x = link_.is_first(action.chunk) ? inputs(action.microbatch, batch)
                                                : link_.take_input(action.microbatch, action.chunk);
  if (replaying() && !link_.is_first(action.chunk)) replay_->received(at("the input", action), x);
  const UnitRange& units = model_.chunks()[static_cast<std::size_t>(action.chunk)];
  const auto await_parameters = [&](std::size_t unit) { gather_.ready_from(model_.unit_begin(unit, action.chunk)); };
  await_parameters(static_cast<std::size_t>(units.first));
  Tensor y = model_.forward(x, kept, Mode::kTraining, action.chunk, [&](std::size_t unit, const Tensor& output) {
    if (unit + 1 < static_cast<std::size_t>(units.end)) await_parameters(unit + 1);
    if (replaying()) replay_->computed(at("the output of " + model_.units()[unit].name, action), output);
    progress();
  });
  if (link_.is_last(action.chunk)) {
    apply_loss(action, batch, y);
  } else {
    link_.put_output(action.microbatch, action.chunk, std::move(y));
  }
}

Tensor Executor::inputs(int microbatch, const Batch& batch) {
  if (!recording_.enabled()) return transfer_.inputs(batch);
  return transfer_.inputs(loaded_[static_cast<std::size_t>(microbatch)].inputs);
}

Tensor Executor::targets(int microbatch, const Batch& batch, const Shape& outputs) {
  if (!recording_.enabled()) return transfer_.targets(batch, outputs);
  return loaded_[static_cast<std::size_t>(microbatch)].targets;
}

void Executor::apply_loss(const Action& action, const Batch& batch, const Tensor& outputs) {
  const Tensor doutputs = backend_.tensor(outputs.shape(), outputs.dtype());
  const Tensor wanted = targets(action.microbatch, batch, outputs.shape());
  add_loss(batch, outputs, wanted, global_samples_, doutputs, loss_scale_.tensor());
  link_.put_output_gradient(action.microbatch, action.chunk, doutputs);
}

void Executor::add_loss(const Batch& batch, const Tensor& outputs, const Tensor& targets, std::int64_t global_samples,
                        const Tensor& doutputs, const Tensor& loss_scale) {
  if (coordinates_.head != nullptr) {
    coordinates_.head->apply(loss_, outputs, {targets, batch.samples, model_.output_shape()[1]}, global_samples,
                             doutputs, totals_.losses(), loss_scale);
  } else {
    loss_.apply(backend_, outputs, targets, global_samples, doutputs, totals_.losses(), loss_scale,
                batch.class_weights.has_value());
  }
}

void Executor::backward(const Action& action) {
  Cache& kept = cache(action.microbatch);
  const auto unit_done = [&](std::int64_t elements) { weights_done(action, elements); };
  if (action.kind == ActionKind::kBackwardWeight) {
    model_.backward_weight(kept, unit_done, action.chunk);
    return;
  }
  const Tensor dy = link_.take_output_gradient(action.microbatch, action.chunk);
  if (replaying() && !link_.is_last(action.chunk)) {
    replay_->received(at("the gradient of the output", action), dy);
  } else if (replaying()) {
    replay_->computed(at("the gradient of the outputs", action), dy);
  }
  Tensor dx = action.kind == ActionKind::kBackward
                  ? model_.backward(dy, kept, unit_done, action.chunk)
                  : model_.backward_input(dy, kept, action.chunk, [this] { progress(); });
  if (replaying()) replay_->computed(at("the gradient of the input", action), dx);
  link_.put_input_gradient(action.microbatch, action.chunk, std::move(dx));
}

// After the last microbatch a chunk's gradients are final; buckets want a growing front of the whole buffer, in which
// the last chunk lies first.
void Executor::weights_done(const Action& action, std::int64_t elements) {
  progress();
  if (action.microbatch + 1 < schedule_.microbatches) return;
  done_[static_cast<std::size_t>(action.chunk)] = elements;
  std::int64_t front = 0;
  for (int chunk = schedule_.chunks; chunk-- > 0;) {
    front = done_[static_cast<std::size_t>(chunk)];
    if (front < model_.chunk_end(chunk)) break;
  }
  buckets_.ready_up_to(std::max<std::int64_t>(0, front - model_.parameters().sharded_elements()));
}

// The statistics of a step are complete after its last forward: their sum travels while backward runs.
void Executor::start_statistics() {
  const Tensor& statistics = model_.parameters().statistics();
  if (replaying() && statistics.size() > 0) replay_->computed("the batch-norm statistics", statistics);
  if (coordinates_.replicas != nullptr && statistics.size() > 0) {
    statistics_ = coordinates_.replicas->all_reduce(statistics, ReduceOp::kSum, "batch-norm statistics");
  }
}

void Executor::reduce_gradients() {
  buckets_.finish();
  if (statistics_) {
    statistics_->wait();
    statistics_.reset();
  }
}

// Those of the shard that this replica updates, else all.
Tensor Executor::reduced_gradients() { return optimizer_.of_shard(model_.parameters().gradients()); }

// Replicas have equal gradients, so only stages and shards add to the norm.
void Executor::clip_gradients() {
  if (!clip_.enabled()) return;
  const Tensor& squares = replaying() ? replay_->measure(clip_) : clip_.measure();
  if (shards_gradients()) {
    coordinates_.replicas->all_reduce(squares, ReduceOp::kSum, "norm of the gradients")->wait();
  }
  if (coordinates_.stages != nullptr) {
    coordinates_.stages->all_reduce(squares, ReduceOp::kSum, "norm of the gradients")->wait();
  }
  clip_.find_factor(totals_.gradient_norm());
  replaying() ? replay_->scale(clip_) : clip_.scale(reduced_gradients());
}

void Executor::optimizer_step() {
  std::array<double, 1> finite{scaler_.unscale(backend_, reduced_gradients()) ? 1.0 : 0.0};
  if (scaler_.enabled()) {  // replicas have equal gradients, shards and stages have not
    const std::string what = "overflow of gradients";
    if (shards_gradients()) coordinates_.replicas->all_reduce(std::span<double>(finite), ReduceOp::kMin, what);
    if (coordinates_.stages != nullptr) {
      coordinates_.stages->all_reduce(std::span<double>(finite), ReduceOp::kMin, what);
    }
  }
  totals_.set_gradient_norm_found(clip_.enabled() && finite[0] > 0);
  if (finite[0] > 0) {
    clip_gradients();
    update_parameters();
  }
  scaler_.finish(finite[0] > 0, update_);
  replaying() ? replay_->update_running_statistics() : model_.parameters().update_running_statistics();
  if (average_ != nullptr) replaying() ? replay_->update_average(*average_, update_) : average_->update(update_);
  if (!gather_.enabled()) model_.parameters().refresh_learned();
}

void Executor::update_parameters() {
  replaying() ? replay_->update(lr_, update_, totals_.nonfinite()) : optimizer_.step(lr_, update_, totals_.nonfinite());
  if (!gather_.enabled()) return;
  gather_.start();
  // A recorded step cannot wait within its forward, and the average reads all parameters.
  if (recording_.enabled() || average_ != nullptr) gather_.finish();
}

}  // namespace convoy
