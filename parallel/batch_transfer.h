// SPDX-License-Identifier: Apache-2.0
//
// Batches from host memory into tensors: images normalised, labels or targets copied. Relies on the backend alone.
#pragma once

#include "layers/backend/backend.h"
#include "layers/batch.h"

namespace convoy {

class BatchTransfer {
 public:
  /// sample: [n, C, H, W] or [n, F]. Throws a usage Error when the normalization does not fit its channels.
  BatchTransfer(Backend& backend, const Shape& sample, const Normalization& normalization);

  /// The inputs in compute type; uint8 images are normalised.
  [[nodiscard]] Tensor inputs(const Batch& batch);
  /// The same from a tensor that holds them as the data set has them.
  [[nodiscard]] Tensor inputs(const Tensor& raw);
  /// int64 [n] labels, or float32 targets of the shape of `outputs`.
  [[nodiscard]] Tensor truth(const Batch& batch, const Shape& outputs);

 private:
  Backend& backend_;
  Tensor mean_, std_;  // float32 [C], of uint8 images
};

}  // namespace convoy
