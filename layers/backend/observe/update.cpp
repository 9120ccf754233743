// SPDX-License-Identifier: Apache-2.0
//
// Optimizer updates of the compare backend: element-wise in any layout, so the reference works on the subject's.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

void CompareBackend::sgd_update(const SgdUpdate& update, const Tensor& values, const Tensor& gradients,
                                const Tensor& momentum) {
  Comparison c(*this, "sgd_update",
               fmt::format("{} elements{}{}", values.size(), momentum ? "" : ", no momentum",
                           update.nesterov ? ", nesterov" : ""));
  c.reads(gradients).adds("values", values).adds("momentum", momentum);
  c.run([&](Backend& backend, const auto& at) { backend.sgd_update(update, at(values), at(gradients), at(momentum)); });
}

void CompareBackend::adamw_update(const AdamwUpdate& update, const Tensor& values, const Tensor& gradients,
                                  const Tensor& first_moment, const Tensor& second_moment) {
  Comparison c(*this, "adamw_update", fmt::format("{} elements", values.size()));
  c.reads(gradients).adds("values", values).adds("first moment", first_moment).adds("second moment", second_moment);
  c.run([&](Backend& backend, const auto& at) {
    backend.adamw_update(update, at(values), at(gradients), at(first_moment), at(second_moment));
  });
}

void CompareBackend::lars_update(const LarsUpdate& update, std::span<const Segment> segments, const Tensor& values,
                                 const Tensor& gradients, const Tensor& momentum) {
  Comparison c(*this, "lars_update", fmt::format("{} elements in {} segments", values.size(), segments.size()));
  c.reads(gradients).adds("values", values).adds("momentum", momentum);
  c.run([&](Backend& backend, const auto& at) {
    backend.lars_update(update, segments, at(values), at(gradients), at(momentum));
  });
}

}  // namespace convoy
