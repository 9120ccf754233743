// SPDX-License-Identifier: Apache-2.0
//
// Losses of the compare backend.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

void CompareBackend::softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float smoothing, float scale,
                                           const Tensor& dlogits, const Tensor& totals) {
  Comparison c(*this, "softmax_cross_entropy",
               fmt::format("logits {}, smoothing {}, scale {}", logits.shape().str(), smoothing, scale));
  c.reads(logits, labels).sets("dlogits", dlogits).adds("totals", totals);
  c.run([&](Backend& backend, const auto& at) {
    backend.softmax_cross_entropy(at(logits), at(labels), smoothing, scale, at(dlogits), at(totals));
  });
}

void CompareBackend::mse(const Tensor& predictions, const Tensor& targets, float scale, const Tensor& dpredictions,
                         const Tensor& totals) {
  Comparison c(*this, "mse",
               fmt::format("predictions {}, targets {} {}, scale {}", predictions.shape().str(),
                           dtype_name(targets.dtype()), targets.shape().str(), scale));
  c.reads(predictions, targets).sets("dpredictions", dpredictions).adds("totals", totals);
  c.run([&](Backend& backend, const auto& at) {
    backend.mse(at(predictions), at(targets), scale, at(dpredictions), at(totals));
  });
}

}  // namespace convoy
