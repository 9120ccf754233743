// SPDX-License-Identifier: Apache-2.0
//
// Batches from host memory into tensors: images normalised, labels or targets copied. Relies on the backend alone.
#pragma once

#include "layers/backend/backend.h"
#include "layers/batch.h"

namespace convoy {

/// A batch in the backend's memory.
struct LoadedBatch {
  Tensor inputs;  ///< as the data set has them
  Tensor truth;
};

class BatchTransfer {
 public:
  /// sample: [n, C, H, W] or [n, F]. Throws a usage Error when the normalization does not fit its channels.
  BatchTransfer(Backend& backend, const Shape& sample, const Normalization& normalization);

  /// The inputs in compute type; uint8 images are normalised.
  [[nodiscard]] Tensor inputs(const Batch& batch);
  /// The same from a tensor that holds them as the data set has them.
  [[nodiscard]] Tensor inputs(const Tensor& raw);
  /// Copies a batch into `loaded`, whose memory is taken once for a batch of the size that was given to the
  /// constructor, so that recorded work finds every batch at the same place. outputs: shape of the network's output.
  void load(const Batch& batch, const Shape& outputs, LoadedBatch& loaded);
  /// int64 [n] labels, or float32 targets of the shape of `outputs`.
  [[nodiscard]] Tensor truth(const Batch& batch, const Shape& outputs);

 private:
  Backend& backend_;
  std::int64_t most_samples_;
  Tensor mean_, std_;  // float32 [C], of uint8 images
};

}  // namespace convoy
