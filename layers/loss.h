// SPDX-License-Identifier: Apache-2.0
//
// The losses and their options. Each adds its per-sample sums to `totals` and, in training, leaves the gradient of the
// mean over the global batch, so that gradients only ever need summing.
#pragma once

#include <cstdint>

#include "layers/backend/backend.h"
#include "layers/base/options.h"

namespace convoy {

/// What is counted beside a loss, in LossTotals and in evaluations.
enum class Scores {
  kTopK,        ///< top-1 and top-5 correct
  kRegression,  ///< absolute and squared errors
  kMultiLabel   ///< outputs on the side of their target, samples all of whose outputs are
};

struct Loss {
  enum class Kind {
    kCrossEntropy,  ///< softmax cross-entropy against class labels or probabilities (torch.nn.CrossEntropyLoss)
    kMse,           ///< mean squared error (torch.nn.MSELoss) against targets, or against one-hot class labels
    kL1,            ///< mean absolute error (torch.nn.L1Loss) against the same
    kBce            ///< binary cross-entropy of each output with logits (torch.nn.BCEWithLogitsLoss) against the same
  } kind = Kind::kCrossEntropy;
  double label_smoothing = 0;  ///< training only; evaluation reports the plain loss

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("loss", o.kind, anything(),
          "mse, l1 and bce (with logits) are means over samples and outputs, and take class labels as one-hot targets");
    v.key("label_smoothing", o.label_smoothing,
          below(0, 1).only_for("train.loss", o.kind, {Kind::kCrossEntropy, Kind::kBce}),
          "share of the target spread over all classes");
  }
  bool operator==(const Loss&) const = default;

  /// Of data with float targets, or with class labels.
  [[nodiscard]] Scores scores(bool float_targets) const {
    if (!float_targets || kind == Kind::kCrossEntropy) return Scores::kTopK;
    return kind == Kind::kBce ? Scores::kMultiLabel : Scores::kRegression;
  }

  /// outputs [n, K]; targets: int64 [n] labels or float32 [n, K] targets; totals float64 [3], see Backend.
  /// doutputs (set): gradient of loss_scale * sum / global_samples; empty in evaluation. loss_scale: float32 [1],
  /// empty: 1. smoothed: whether the targets are smoothed already.
  void apply(Backend& backend, const Tensor& outputs, const Tensor& targets, std::int64_t global_samples,
             const Tensor& doutputs, const Tensor& totals, const Tensor& loss_scale = ops::none(),
             bool smoothed = false) const {
    const float scale = 1.0F / static_cast<float>(global_samples);
    const float smoothing = doutputs && !smoothed ? static_cast<float>(label_smoothing) : 0.0F;
    if (kind == Kind::kCrossEntropy) {
      backend.run(ops::SoftmaxCrossEntropy{outputs, targets, loss_scale, smoothing, scale, doutputs, totals});
    } else {
      const LossFunction function = kind == Kind::kMse  ? LossFunction::kMse
                                    : kind == Kind::kL1 ? LossFunction::kL1
                                                        : LossFunction::kBce;
      backend.run(ops::PointwiseLoss{outputs, targets, loss_scale, scale, doutputs, totals, function, smoothing});
    }
  }
};
CONVOY_OPTION_ENUM(Loss::Kind, "cross_entropy", "mse", "l1", "bce");

}  // namespace convoy
