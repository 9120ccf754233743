// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/batch_transfer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/base/error.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

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

// Whether labels become class probabilities.
bool has_probabilities(const Batch& batch) { return batch.mixing || batch.class_weights; }

}  // namespace

BatchTransfer::BatchTransfer(Backend& backend, const Shape& largest, std::int64_t channels,
                             const Normalization& normalization, double label_smoothing, bool pads_labels)
    : backend_(backend),
      largest_(largest),
      channels_(channels),
      label_smoothing_(label_smoothing),
      pads_labels_(pads_labels) {
  if (largest.rank() != 4) return;
  mean_ = channel_values(backend_, normalization.mean, largest[1], "mean");
  std_ = channel_values(backend_, normalization.std, largest[1], "std");
}

Tensor BatchTransfer::inputs(const Batch& batch) {
  RawInputs raw{backend_.tensor(batch.raw_shape(), batch.input_dtype), {}, {}, {}};
  backend_.copy_from_host(batch.inputs, raw.samples);
  load_changes(batch, 0, batch.samples, raw);
  return inputs(raw);
}

Tensor BatchTransfer::inputs(const RawInputs& raw) {
  const Tensor& samples = raw.samples;
  if (samples.dtype() == backend_.compute_type()) return samples;
  Shape shape = samples.shape();
  if (samples.dtype() == DType::kU8) shape.set(1, channels_);
  if (raw.weights) shape.set(0, shape[0] - 1);
  Tensor inputs = backend_.tensor(shape, backend_.compute_type());
  if (samples.dtype() == DType::kU8) {
    backend_.run(ops::NormalizeImages{samples, mean_, std_, inputs, raw.erased, raw.weights, raw.mixed});
  } else {
    backend_.run(ops::Cast{samples, inputs});
  }
  return inputs;
}

void BatchTransfer::load_changes(const Batch& batch, std::int64_t first, std::int64_t samples, RawInputs& raw) {
  const std::int64_t images = samples + (batch.mixing ? 1 : 0);
  if (batch.erased != nullptr) {
    if (!raw.erased) raw.erased = backend_.tensor({images, 4}, DType::kI64);
    backend_.copy_from_host(batch.erased + 4 * first, raw.erased);
  }
  if (!batch.mixing) return;
  if (!raw.weights) {
    raw.weights = backend_.tensor({2}, DType::kF32);
    raw.mixed = backend_.tensor({4}, DType::kI64);
  }
  backend_.copy_from_host(batch.mixing->pixels.data(), raw.weights);
  backend_.copy_from_host(batch.mixing->box.data(), raw.mixed);
}

void BatchTransfer::load(const Batch& batch, const Shape& outputs, LoadedBatch& loaded) {
  const bool labels = batch.labels != nullptr && !has_probabilities(batch);
  const Shape targets = labels ? Shape{label_count(batch)} : outputs.with_batch(batch.samples);
  RawInputs& inputs = loaded.inputs;
  const Shape raw = batch.raw_shape();
  const std::int64_t most = largest_[0] + (batch.mixing ? 1 : 0);
  if (!inputs.samples) {
    inputs.samples = backend_.tensor(largest_.with_batch(most), batch.input_dtype);
    if (batch.erased != nullptr) inputs.erased = backend_.tensor({most, 4}, DType::kI64);
    loaded.targets = backend_.tensor(targets.with_batch(largest_[0]), labels ? DType::kI64 : DType::kF32);
  }
  inputs.samples = inputs.samples.reshaped(raw);  // fewer or smaller samples lie at the front
  if (inputs.erased) inputs.erased = inputs.erased.reshaped({raw[0], 4});
  loaded.targets = loaded.targets.reshaped(targets);
  backend_.copy_from_host(batch.inputs, inputs.samples);
  load_changes(batch, 0, batch.samples, inputs);
  copy_targets(batch, loaded.targets);
}

Tensor BatchTransfer::targets(const Batch& batch, const Shape& outputs) {
  const bool labels = batch.labels != nullptr && !has_probabilities(batch);
  Tensor targets = labels ? backend_.tensor({label_count(batch)}, DType::kI64) : backend_.tensor(outputs, DType::kF32);
  copy_targets(batch, targets);
  return targets;
}

void BatchTransfer::copy_targets(const Batch& batch, const Tensor& targets) {
  if (has_probabilities(batch) && !rehearsing()) {
    set_probabilities(batch, targets.shape()[1]);
    if (batch.class_weights) weigh_probabilities(*batch.class_weights);
    backend_.copy_from_host(probabilities_.data(), targets);
  } else if (pads_labels_ && batch.samples < targets.size()) {
    std::vector<std::int64_t> padded(batch.labels, batch.labels + batch.samples);
    padded.resize(static_cast<std::size_t>(targets.size()), -1);
    backend_.copy_from_host(padded.data(), targets);
  } else {
    backend_.copy_from_host(batch.labels != nullptr ? static_cast<const void*>(batch.labels) : batch.targets, targets);
  }
}

// Those of the labels, [samples, classes].
void BatchTransfer::set_probabilities(const Batch& batch, std::int64_t classes) {
  const std::int64_t partners = batch.mixing ? 1 : 0;
  const auto [own, partner] = batch.mixing.value_or(Mixing()).labels;
  probabilities_.assign(static_cast<std::size_t>(batch.samples * classes), 0.0F);
  for (std::int64_t n = 0; n < batch.samples + partners; ++n) {
    const std::int64_t label = batch.labels[n];
    if (label < 0 || label >= classes) fail("label {} is outside 0 to {}", label, classes - 1);
    const auto at = [&](std::int64_t sample) -> float& {
      return probabilities_[static_cast<std::size_t>(sample * classes + label)];
    };
    if (n >= partners) at(n - partners) += own;
    if (partners > 0 && n < batch.samples) at(n) += partner;
  }
}

void BatchTransfer::weigh_probabilities(const ClassWeights& weights) {
  const std::size_t classes = weights.of_class.size();
  const double even = label_smoothing_ / static_cast<double>(classes);
  for (std::size_t i = 0; i < probabilities_.size(); ++i) {
    const double smoothed = (1 - label_smoothing_) * static_cast<double>(probabilities_[i]) + even;
    probabilities_[i] = static_cast<float>(smoothed * weights.of_class[i % classes] * weights.scale);
  }
}

}  // namespace convoy
