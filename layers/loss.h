// SPDX-License-Identifier: Apache-2.0
//
// The losses and their options. Each adds its per-sample sums to `totals` and, in training, leaves the gradient of the
// mean over the global batch, so that gradients only ever need summing.
#pragma once

#include <cstdint>

#include "layers/backend/backend.h"
#include "layers/base/options.h"

namespace convoy {

struct Loss {
  enum class Kind {
    kCrossEntropy,  ///< softmax cross-entropy against class labels (torch.nn.CrossEntropyLoss)
    kMse            ///< mean squared error (torch.nn.MSELoss) against targets, or against one-hot class labels
  } kind = Kind::kCrossEntropy;
  double label_smoothing = 0;  ///< training only; evaluation reports the plain loss

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& o) {
    v.key("loss", o.kind, anything(), "mse also takes class labels, as one-hot targets");
    v.key("label_smoothing", o.label_smoothing, below(0, 1).only_for("train.loss", o.kind, {Kind::kCrossEntropy}),
          "share of the target spread over all classes");
  }
  bool operator==(const Loss&) const = default;

  /// outputs [n, K]; targets: int64 [n] labels or float32 [n, K] targets; totals float64 [3], see Backend.
  /// doutputs (set): gradient of loss_scale * sum / global_samples; empty in evaluation. loss_scale: float32 [1],
  /// empty: 1.
  void apply(Backend& backend, const Tensor& outputs, const Tensor& targets, std::int64_t global_samples,
             const Tensor& doutputs, const Tensor& totals, const Tensor& loss_scale = ops::none()) const {
    const float scale = 1.0F / static_cast<float>(global_samples);
    if (kind == Kind::kMse) {
      backend.run(ops::Mse{outputs, targets, loss_scale, scale, doutputs, totals});
    } else {
      backend.run(ops::SoftmaxCrossEntropy{outputs, targets, loss_scale,
                                           doutputs ? static_cast<float>(label_smoothing) : 0.0F, scale, doutputs,
                                           totals});
    }
  }
};
CONVOY_OPTION_ENUM(Loss::Kind, "cross_entropy", "mse");

}  // namespace convoy
