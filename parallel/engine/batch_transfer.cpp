// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/batch_transfer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/base/error.h"

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

}  // namespace

BatchTransfer::BatchTransfer(Backend& backend, const Shape& largest, std::int64_t channels,
                             const Normalization& normalization)
    : backend_(backend), largest_(largest), channels_(channels) {
  if (largest.rank() != 4) return;
  mean_ = channel_values(backend_, normalization.mean, largest[1], "mean");
  std_ = channel_values(backend_, normalization.std, largest[1], "std");
}

Tensor BatchTransfer::inputs(const Batch& batch) {
  const Tensor raw = backend_.tensor(batch.input_shape, batch.input_dtype);
  backend_.copy_from_host(batch.inputs, raw);
  return inputs(raw);
}

Tensor BatchTransfer::inputs(const Tensor& raw) {
  if (raw.dtype() == backend_.compute_type()) return raw;
  Shape shape = raw.shape();
  if (raw.dtype() == DType::kU8) shape.set(1, channels_);
  Tensor inputs = backend_.tensor(shape, backend_.compute_type());
  if (raw.dtype() == DType::kU8) {
    backend_.run(ops::NormalizeImages{raw, mean_, std_, inputs});
  } else {
    backend_.run(ops::Cast{raw, inputs});
  }
  return inputs;
}

void BatchTransfer::load(const Batch& batch, const Shape& outputs, LoadedBatch& loaded) {
  const bool labels = batch.labels != nullptr;
  const Shape targets = labels ? Shape{batch.samples} : outputs.with_batch(batch.samples);
  if (!loaded.inputs) {
    loaded.inputs = backend_.tensor(largest_, batch.input_dtype);
    loaded.targets = backend_.tensor(targets.with_batch(largest_[0]), labels ? DType::kI64 : DType::kF32);
  }
  loaded.inputs = loaded.inputs.reshaped(batch.input_shape);  // fewer or smaller samples lie at the front
  loaded.targets = loaded.targets.reshaped(targets);
  backend_.copy_from_host(batch.inputs, loaded.inputs);
  backend_.copy_from_host(labels ? static_cast<const void*>(batch.labels) : batch.targets, loaded.targets);
}

Tensor BatchTransfer::targets(const Batch& batch, const Shape& outputs) {
  const bool labels = batch.labels != nullptr;
  Tensor targets = labels ? backend_.tensor({batch.samples}, DType::kI64) : backend_.tensor(outputs, DType::kF32);
  if (labels) {
    backend_.copy_from_host(batch.labels, targets);
  } else {
    backend_.copy_from_host(batch.targets, targets);
  }
  return targets;
}

}  // namespace convoy
