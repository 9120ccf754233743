// SPDX-License-Identifier: Apache-2.0
//
// Copies batches from host memory into tensors and normalises images. Relies only on the backend.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/base/batch.h"

namespace convoy {

/// What inputs are made from, in device memory.
struct RawInputs {
  Tensor samples;  ///< in the data type of the data set
  Tensor erased;   ///< these three: as NormalizeImages takes them, or empty
  Tensor weights, mixed;
};

/// A batch in device memory.
struct LoadedBatch {
  RawInputs inputs;
  Tensor targets;
};

class BatchTransfer {
 public:
  /// largest: the shape of the largest batch, [n, C, H, W] or [n, F]; channels: of normalised images, at least C.
  /// label_smoothing: of batches with class weights. pads_labels: labels are int64 [n] of the largest batch, -1 behind
  /// those of the batch. Throws a usage Error when the normalization does not fit the images.
  BatchTransfer(Backend& backend, const Shape& largest, std::int64_t channels, const Normalization& normalization,
                double label_smoothing = 0, bool pads_labels = false);

  /// The inputs in the compute type; uint8 images are normalised, and the channels that they lack are 0.
  [[nodiscard]] Tensor inputs(const Batch& batch);
  /// The same, of what is there already.
  [[nodiscard]] Tensor inputs(const RawInputs& raw);
  /// Copies how images are erased and mixed into tensors of `raw`, which are made where they are missing. `samples` of
  /// the batch from the one at `first` on.
  void load_changes(const Batch& batch, std::int64_t first, std::int64_t samples, RawInputs& raw);
  /// Copies a batch into `loaded`, whose memory is allocated once for the largest batch, so that recorded work finds
  /// every batch at the same address. outputs: shape of the network's output.
  void load(const Batch& batch, const Shape& outputs, LoadedBatch& loaded);
  /// int64 [n] labels, or float32 targets of the shape of `outputs`: of a mixed batch class probabilities. With class
  /// weights w the targets t are smoothed, as (1 - s) * t + s / K, and target k is t_k * w_k * scale: so the
  /// cross-entropy against them is the weighted one, and its gradient too.
  [[nodiscard]] Tensor targets(const Batch& batch, const Shape& outputs);

 private:
  [[nodiscard]] std::int64_t label_count(const Batch& batch) const {
    return pads_labels_ ? largest_[0] : batch.samples;
  }
  void copy_targets(const Batch& batch, const Tensor& targets);
  void set_probabilities(const Batch& batch, std::int64_t classes);
  void weigh_probabilities(const ClassWeights& weights);

  Backend& backend_;
  Shape largest_;
  std::int64_t channels_;
  Tensor mean_, std_;  // float32 [C], of uint8 images
  double label_smoothing_;
  bool pads_labels_;
  std::vector<float> probabilities_;  // of a batch that is mixed or has class weights
};

}  // namespace convoy
