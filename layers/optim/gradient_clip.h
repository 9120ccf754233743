// SPDX-License-Identifier: Apache-2.0
//
// Clipping of gradients by their global norm (Pascanu et al. 2013; torch.nn.utils.clip_grad_norm_). The squares are
// summed up for each parameter, and these sums are added in the order of the whole model: so the norm has the same bits
// however the model is divided into stages, which exchange their sums between measure() and scale(). The host never
// waits for the norm.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/model.h"

namespace convoy {

class GradientClip {
 public:
  /// clip_norm: the largest norm; 0: gradients are not clipped, and nothing else may be called. `model` outlives this.
  /// With a range, only the gradients [begin, end) have been summed over the replicas: measure() counts these alone, so
  /// that the squares of all shards add up to those of the model.
  GradientClip(double clip_norm, Model& model, std::int64_t begin = 0,
               std::int64_t end = std::numeric_limits<std::int64_t>::max());
  [[nodiscard]] bool enabled() const { return clip_norm_ > 0; }

  /// Sets the sums of squares, float64: one for each parameter of the whole model, 0 for what is not held here.
  /// Gradients are those of the global batch, not scaled.
  const Tensor& measure();
  /// Sets norm (float64 [1]) from them, and the factor of scale().
  void find_factor(const Tensor& norm);
  /// Multiplies gradients, all or a part of them, by min(1, clip_norm / (norm + 1e-6)).
  void scale(const Tensor& gradients);

 private:
  double clip_norm_;
  Model& model_;
  std::vector<Segment> segments_;  // of every parameter of the model; without elements if it is not held here
  Tensor squares_, factor_;
};

}  // namespace convoy
