// SPDX-License-Identifier: Apache-2.0
//
// Losses and the updates of optimizers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "layers/backend/operation.h"

namespace convoy {

/// Losses of each prediction p against its target t by itself, with torch.nn's names.
enum class LossFunction {
  kMse,  ///< MSELoss: (p - t)^2
  kL1,   ///< L1Loss: |p - t|; its slope at 0 is 0
  kBce   ///< BCEWithLogitsLoss: -t * log(sigmoid(p)) - (1 - t) * log(1 - sigmoid(p)), in a form that does not overflow
};

/// The classes of which a rank has the logits: first, first + 1, ... in the columns 0, 1, ... of a tensor that may have
/// more columns.
struct ClassShard {
  std::int64_t first = 0, count = 0;
  std::int64_t classes = 0;  ///< of all ranks together
};

/// Columns of every rank: as many as the shard with the most classes has.
[[nodiscard]] inline std::int64_t shard_columns(std::int64_t classes, int shards) {
  return (classes + shards - 1) / shards;
}
/// Shard number `shard` of so many. The last ones may have fewer classes, or none.
[[nodiscard]] inline ClassShard class_shard(std::int64_t classes, int shard, int shards) {
  const std::int64_t each = shard_columns(classes, shards), first = std::min(each * shard, classes);
  return {first, std::min(each, classes - first), classes};
}

namespace ops {

// ---- losses. loss_scale is float32 [1], another factor of the gradient, which recorded work reads anew each time;
// empty: 1. totals is float64 [3], all added to: the sum of the losses of the samples, and two scores of them. With
// smoothing, targets t are (1 - smoothing) * t + smoothing / K

/// Cross-entropy of softmax(logits [N, K]) against labels (int64 [N]) or class probabilities (float32 [N, K]), as
/// torch.nn.CrossEntropyLoss. Scores: top-1 and top-5 correct, of probabilities against the first of the largest. Sets
/// dlogits = scale * loss_scale * d(sum of losses)/dlogits unless it is empty.
struct SoftmaxCrossEntropy {
  static constexpr const char* kName = "softmax_cross_entropy";
  In logits, targets, loss_scale;
  float smoothing = 0, scale = 1;
  Out dlogits;
  InOut totals;
  template <class V>
  SoftmaxCrossEntropy visit(V& v) const {
    return {v.in(logits),
            v.in(targets),
            v.in(loss_scale),
            smoothing,
            scale,
            v.out("dlogits", dlogits),
            v.in_out("totals", totals)};
  }
};

/// The loss of a sample is the mean of the function over its K outputs. Targets are float32 [N, K], or int64 [N] for
/// one-hot targets. Scores: with labels top-1 and top-5 correct; with float targets of kMse and kL1 the mean absolute
/// and the mean squared error of the sample, of kBce the share of outputs that are on the target's side (sigmoid(p) and
/// t above 1/2, or neither), and whether all are. Sets dpredictions as above.
struct PointwiseLoss {
  static constexpr const char* kName = "pointwise_loss";
  In predictions, targets, loss_scale;
  float scale = 1;
  Out dpredictions;
  InOut totals;
  LossFunction function = LossFunction::kMse;
  float smoothing = 0;
  template <class V>
  PointwiseLoss visit(V& v) const {
    return {v.in(predictions),          v.in(targets), v.in(loss_scale), scale, v.out("dpredictions", dpredictions),
            v.in_out("totals", totals), function,      smoothing};
  }
};

// ---- cross-entropy of logits [N, C] that are divided over ranks by classes, as the vocabulary-parallel one of
// Megatron-LM (Shoeybi et al. 2019, section 3). Every rank has all labels, int64 [N]; a label below 0 marks a row that
// is no sample

/// Sets maxima, float64 [2, N]: the largest logit, and the logit of the label, -infinity where it is not here. To be
/// reduced over the ranks with max.
struct ShardMaxima {
  static constexpr const char* kName = "shard_maxima";
  In logits, labels;
  ClassShard shard;
  Out maxima;
  template <class V>
  ShardMaxima visit(V& v) const {
    return {v.in(logits), v.in(labels), shard, v.out("maxima", maxima)};
  }
};

/// Sets sums, float64 [3, N]: of exp(logit - largest), of the classes here that come before the label (greater logits,
/// equal ones of a lower index, NaNs), and of the logits. To be reduced over the ranks with sum. maxima are reduced.
struct ShardSums {
  static constexpr const char* kName = "shard_sums";
  In logits, labels, maxima;
  ClassShard shard;
  Out sums;
  template <class V>
  ShardSums visit(V& v) const {
    return {v.in(logits), v.in(labels), v.in(maxima), shard, v.out("sums", sums)};
  }
};

/// SoftmaxCrossEntropy against labels, from reduced maxima and sums. Adds the losses and scores of the samples
/// first_sample, first_sample + 1, ... alone to the totals. Sets dlogits [N, C] of all rows unless it is empty, as
/// logits may be then: 0 in rows that are no samples and in columns that are no classes.
struct ShardCrossEntropy {
  static constexpr const char* kName = "shard_cross_entropy";
  In logits, labels, maxima, sums, loss_scale;
  ClassShard shard;
  std::int64_t first_sample = 0, samples = 0;
  float smoothing = 0, scale = 1;
  Out dlogits;
  InOut totals;
  template <class V>
  ShardCrossEntropy visit(V& v) const {
    return {
        v.in(logits), v.in(labels), v.in(maxima), v.in(sums), v.in(loss_scale),          shard,
        first_sample, samples,      smoothing,    scale,      v.out("dlogits", dlogits), v.in_out("totals", totals)};
  }
};

// ---- clipping by the global norm of the gradients (torch.nn.utils.clip_grad_norm_)

/// Sets squares (float64, one for each segment) to the sums of the squares of x (float32). The bits of a sum depend on
/// its own segment alone.
struct SquaredNorms {
  static constexpr const char* kName = "squared_norms";
  std::span<const Segment> segments;
  In x;
  Out squares;
  template <class V>
  SquaredNorms visit(V& v) const {
    return {segments, v.in(x), v.out("squares", squares)};
  }
};

inline constexpr double kClipEpsilon = 1e-6;

/// Sets norm (float64 [1]) to the root of the sum of squares (float64), and factor (float32 [1]) to
/// min(1, clip_norm / (norm + 1e-6)), which is NaN if the norm is.
struct ClipFactor {
  static constexpr const char* kName = "clip_factor";
  double clip_norm;
  In squares;
  Out norm, factor;
  template <class V>
  ClipFactor visit(V& v) const {
    return {clip_norm, v.in(squares), v.out("norm", norm), v.out("factor", factor)};
  }
};

// ---- optimizers, over flat float32 buffers. nonfinite (float64 [1], may be empty) is set to 1 if a new value is
// infinite or NaN, else left as it is. no_decay is uint8, a flag for each kParameterAlignment elements of values: not 0
// where weight_decay does not apply (for LAMB the same in all of a segment); empty: it applies to all

/// torch.optim.SGD: d = g + weight_decay * w; v = momentum * v + d (v starts at 0);
/// w -= lr * (nesterov ? d + momentum * v : v). `momentum` is v, empty if momentum is 0.
struct SgdUpdate {
  static constexpr const char* kName = "sgd_update";
  struct Hyperparameters {
    float lr, momentum, weight_decay;
    bool nesterov;
  };
  Hyperparameters hyperparameters;
  InOut values;
  In gradients;
  InOut momentum;
  InOut nonfinite = none();
  In no_decay = none();
  template <class V>
  SgdUpdate visit(V& v) const {
    return {hyperparameters,
            v.in_out("values", values),
            v.in(gradients),
            v.in_out("momentum", momentum),
            v.in_out("nonfinite", nonfinite),
            v.in(no_decay)};
  }
};

/// Loshchilov & Hutter 2019, as torch.optim.AdamW: w -= lr * weight_decay * w, then
/// w -= lr / bias1 * m / (sqrt(v / bias2) + epsilon), bias_i = 1 - beta_i^t.
struct AdamwUpdate {
  static constexpr const char* kName = "adamw_update";
  struct Hyperparameters {
    float lr, epsilon, weight_decay;
    double beta1, beta2;
    double bias1, bias2;
  };
  Hyperparameters hyperparameters;
  InOut values;
  In gradients;
  InOut first_moment, second_moment;
  InOut nonfinite = none();
  In no_decay = none();
  template <class V>
  AdamwUpdate visit(V& v) const {
    return {hyperparameters,
            v.in_out("values", values),
            v.in(gradients),
            v.in_out("first moment", first_moment),
            v.in_out("second moment", second_moment),
            v.in_out("nonfinite", nonfinite),
            v.in(no_decay)};
  }
};

/// You et al. 2017: per segment r = trust * |w| / (|g| + weight_decay * |w| + epsilon) where it adapts and both norms
/// are positive, else 1; v = momentum * v + lr * r * (g + weight_decay * w); w -= v.
struct LarsUpdate {
  static constexpr const char* kName = "lars_update";
  struct Hyperparameters {
    float lr, momentum, weight_decay, trust, epsilon;
  };
  Hyperparameters hyperparameters;
  std::span<const Segment> segments;
  InOut values;
  In gradients;
  InOut momentum;
  InOut nonfinite = none();
  template <class V>
  LarsUpdate visit(V& v) const {
    return {hyperparameters,
            segments,
            v.in_out("values", values),
            v.in(gradients),
            v.in_out("momentum", momentum),
            v.in_out("nonfinite", nonfinite)};
  }
};

/// You et al. 2020, as Lamb of timm with always_adapt for weights and without its own clipping (NVIDIA's FusedLAMB with
/// use_nvlamb for what adapts):
/// m and v as Adam; u = m / bias1 / (sqrt(v / bias2) + epsilon) + weight_decay * w; per segment r = |w| / |u| where it
/// adapts and both norms are positive, else 1; w -= lr * r * u; bias_i = 1 - beta_i^t.
struct LambUpdate {
  static constexpr const char* kName = "lamb_update";
  AdamwUpdate::Hyperparameters hyperparameters;
  std::span<const Segment> segments;
  InOut values;
  In gradients;
  InOut first_moment, second_moment;
  InOut nonfinite = none();
  In no_decay = none();
  template <class V>
  LambUpdate visit(V& v) const {
    return {hyperparameters,
            segments,
            v.in_out("values", values),
            v.in(gradients),
            v.in_out("first moment", first_moment),
            v.in_out("second moment", second_moment),
            v.in_out("nonfinite", nonfinite),
            v.in(no_decay)};
  }
};

}  // namespace ops

}  // namespace convoy

// The operations above (operations.h).
#define CONVOY_TRAINING_OPERATIONS(X) \
  X(SoftmaxCrossEntropy)              \
  X(PointwiseLoss)                    \
  X(ShardMaxima)                      \
  X(ShardSums)                        \
  X(ShardCrossEntropy)                \
  X(SquaredNorms)                     \
  X(ClipFactor)                       \
  X(SgdUpdate)                        \
  X(AdamwUpdate)                      \
  X(LarsUpdate)                       \
  X(LambUpdate)
