// SPDX-License-Identifier: Apache-2.0
#include "app/build/rehearsed_rank.h"

#include <cstddef>

#include "app/build/build_model.h"
#include "app/build/build_run.h"

namespace convoy {

namespace {

// As many batches as a step has. Nothing reads what they point to.
std::vector<Batch> batches_of(const DataShape& data, const Augmentation& augmentation, bool weighted,
                              std::int64_t samples, int count) {
  static constexpr std::int64_t kLabel = 0;
  static constexpr float kTarget = 0;
  Batch batch;
  batch.samples = samples;
  batch.input_shape = batch_shape(data.sample, samples);
  batch.input_dtype = data.dtype;
  batch.inputs = &kLabel;
  batch.labels = data.target_size == 0 ? &kLabel : nullptr;
  batch.targets = data.target_size == 0 ? nullptr : &kTarget;
  batch.target_size = data.target_size;
  if (augmentation.erase) batch.erased = &kLabel;
  if (augmentation.mixes()) batch.mixing = Mixing{};
  if (weighted) batch.class_weights = ClassWeights{};
  return std::vector<Batch>(static_cast<std::size_t>(count), batch);
}

}  // namespace

Shape batch_shape(const Shape& sample, std::int64_t samples) {
  return sample.rank() == 3 ? Shape{samples, sample[0], sample[1], sample[2]} : Shape{samples, sample[0]};
}

RehearsedRank::RehearsedRank(const MemoryRequest& request, Backend& backend, bool scales_loss)
    : request_(request),
      stage_(request.layout.mesh.stage(request.rank)),
      stages_(stage_, request.layout.mesh.stages()),
      replicas_(request.layout.mesh.replica(request.rank), request.layout.mesh.replicas()),
      all_(request.rank, request.layout.mesh.ranks()),
      reducer_(replicas_),
      head_(make_head(request.config, request.layout, replicas_, backend)),
      model_(backend, build_units(request.config, request.train.outputs),
             batch_shape(request.train.sample, microbatch()), request.config.run.seed,
             request.config.parallel.sync_batch_norm && replicas_.size() > 1 ? &reducer_ : nullptr,
             stage_chunks(request.layout.schedule, request.layout.partition, stage_), head_.get()),
      scaler_(scales_loss) {}

std::int64_t RehearsedRank::microbatch() const {
  return request_.layout.microbatch(request_.config.train.global_batch_size);
}

Optimizer& RehearsedRank::make_optimizer() {
  const OptimizerOptions& options = request_.config.optimizer;
  optimizer_ = convoy::make_optimizer(options.update, model_.backend(), model_.parameters(), options.no_decay,
                                      optimizer_shard(request_.config, replicas_));
  return *optimizer_;
}

void RehearsedRank::make_runner() {
  const Config& c = request_.config;
  if (request_.purpose != RunPurpose::kEvaluation) average_ = make_average(c, model_);
  replay_ = make_replay(c, model_, *optimizer_, all_, stage_);
  runner_ = convoy::make_runner(c, request_.layout,
                                {stage_, stages_.size() > 1 ? &stages_ : nullptr, &replicas_, head_.get()}, model_,
                                *optimizer_, scaler_, {}, replay_.get(), average_.get());
}

void RehearsedRank::train_step() {
  const std::int64_t whole = request_.config.train.global_batch_size;
  const bool scatters = request_.config.parallel.mode == ParallelMode::kScatter;
  const Augmentation augmentation = request_.config.data.augmentation();
  const bool weighted = !request_.config.data.class_weights.empty();
  const std::vector<Batch> batches = scatters ? batches_of(request_.train, augmentation, weighted, whole, 1)
                                              : batches_of(request_.train, augmentation, weighted, microbatch(),
                                                           request_.layout.schedule.microbatches);
  static_cast<void>(runner_->train_step(batches, whole, 0, 0, {}));
}

void RehearsedRank::evaluate() {
  const std::vector<Batch> batches =
      batches_of(*request_.validation, {}, false, microbatch(), request_.layout.schedule.microbatches);
  static_cast<void>(runner_->evaluate(batches, {}));
}

}  // namespace convoy
