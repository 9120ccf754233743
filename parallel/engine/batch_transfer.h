// SPDX-License-Identifier: Apache-2.0
//
// Copies batches from host memory into tensors and normalises images. Relies only on the backend.
#pragma once

#include "layers/backend/backend.h"
#include "layers/base/batch.h"

namespace convoy {

/// A batch in device memory.
struct LoadedBatch {
  Tensor inputs;  ///< in the data type of the data set
  Tensor targets;
};

class BatchTransfer {
 public:
  /// largest: the shape of the largest batch, [n, C, H, W] or [n, F]; channels: of normalised images, at least C.
  /// Throws a usage Error when the normalization does not fit the images.
  BatchTransfer(Backend& backend, const Shape& largest, std::int64_t channels, const Normalization& normalization);

  /// The inputs in the compute type; uint8 images are normalised, and the channels that they lack are 0.
  [[nodiscard]] Tensor inputs(const Batch& batch);
  /// The same, of a tensor in the data type of the data set.
  [[nodiscard]] Tensor inputs(const Tensor& raw);
  /// Copies a batch into `loaded`, whose memory is allocated once for the largest batch, so that recorded work finds
  /// every batch at the same address. outputs: shape of the network's output.
  void load(const Batch& batch, const Shape& outputs, LoadedBatch& loaded);
  /// int64 [n] labels, or float32 targets of the shape of `outputs`.
  [[nodiscard]] Tensor targets(const Batch& batch, const Shape& outputs);

 private:
  Backend& backend_;
  Shape largest_;
  std::int64_t channels_;
  Tensor mean_, std_;  // float32 [C], of uint8 images
};

}  // namespace convoy
