// SPDX-License-Identifier: Apache-2.0
//
// One microbatch in host memory: what a loader hands to an executor. The memory is the loader's and
// stays valid until the loader is asked for the next batch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layers/base/shape.h"

namespace convoy {

/// mixup (Zhang et al. 2018) or CutMix (Yun et al. 2019) of a batch: each sample is mixed with the one before it in the
/// global batch, the first one with the last. Within a box the pixels are own * sample + partner * the one before.
struct Mixing {
  std::array<std::int64_t, 4> box{};  ///< left, top, width, height: of mixup the whole image
  std::array<float, 2> pixels{1, 0};  ///< own, partner
  std::array<float, 2> labels{1, 0};  ///< the same of the one-hot labels
};

/// Weights of the classes in the loss (`weight` of torch.nn.CrossEntropyLoss), all above 0.
struct ClassWeights {
  std::span<const double> of_class;  ///< [K]
  /// Another factor of all of them. The sum of the losses of the global batch over its samples is then PyTorch's mean:
  /// of labels weighted (samples / sum of their weights), of class probabilities over the samples (1).
  double scale = 1;
};

struct Batch {
  std::int64_t samples = 0;              ///< may be 0 in the last, partial batch of an epoch
  std::int64_t first_position = 0;       ///< of its first sample in the epoch; the others follow
  Shape input_shape;                     ///< [samples, C, H, W] or [samples, F]
  DType input_dtype = DType::kF32;       ///< kU8: images 0..255; kF32: inputs as the network takes them
  const void* inputs = nullptr;          ///< channels-last (NHWC) in memory for rank 4
  const std::int64_t* labels = nullptr;  ///< [samples], or null for regression
  const float* targets = nullptr;        ///< [samples, target_size], or null for classification
  std::int64_t target_size = 0;
  const std::int64_t* erased = nullptr;  ///< [samples, 4]: left, top, width, height of the box of each image that is 0
                                         ///< after normalisation, or null
  /// With it, inputs, labels and erased have one sample more, in front: the partner of the first.
  std::optional<Mixing> mixing;
  std::optional<ClassWeights> class_weights;

  /// Of what `inputs` points to.
  [[nodiscard]] Shape raw_shape() const { return input_shape.with_batch(samples + (mixing ? 1 : 0)); }
};

/// Scaling of uint8 images before the network: (x / 255 - mean[c]) / std[c].
struct Normalization {
  std::vector<float> mean;  ///< per channel, or one value for all
  std::vector<float> std;
};

}  // namespace convoy
