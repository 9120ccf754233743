// SPDX-License-Identifier: Apache-2.0
#include "layers/optim/gradient_clip.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace convoy {

GradientClip::GradientClip(double clip_norm, Model& model, std::int64_t begin, std::int64_t end)
    : clip_norm_(clip_norm), model_(model) {
  if (!enabled()) return;
  std::map<std::string, Segment> held;
  for (const auto& p : model.parameters().parameters()) {
    if (p->frozen) continue;
    const std::int64_t first = std::max(begin, p->offset), last = std::min(end, p->offset + p->layout->elements());
    if (first < last) held[p->name] = {first, last - first, true};
  }
  for (const TensorEntry& entry : only_parameters(model.manifest())) {
    const auto found = held.find(entry.name);
    segments_.push_back(found == held.end() ? Segment{0, 0, false} : found->second);
  }
  squares_ = model.backend().tensor({static_cast<std::int64_t>(segments_.size())}, DType::kF64);
  factor_ = model.backend().tensor({1}, DType::kF32);
}

const Tensor& GradientClip::measure() {
  model_.backend().run(ops::SquaredNorms{segments_, model_.parameters().gradients(), squares_});
  return squares_;
}

void GradientClip::find_factor(const Tensor& norm) {
  model_.backend().run(ops::ClipFactor{clip_norm_, squares_, norm, factor_});
}

void GradientClip::scale(const Tensor& gradients) { model_.backend().run(ops::ScaleBy{factor_, gradients}); }

}  // namespace convoy
