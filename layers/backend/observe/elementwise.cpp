// SPDX-License-Identifier: Apache-2.0
//
// Element-wise and layout operations of the compare backend.
#include <array>

#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string text(const Tensor& x) { return fmt::format("{} {}", dtype_name(x.dtype()), x.shape().str()); }

}  // namespace

void CompareBackend::zero(const Tensor& x) {
  Comparison c(*this, "zero", text(x));
  c.sets("x", x).run([&](Backend& backend, const auto& at) { backend.zero(at(x)); });
}

bool CompareBackend::all_finite(const Tensor& x) {
  Comparison c(*this, "all_finite", text(x));
  std::array<bool, 2> answers{};
  std::size_t side = 0;
  c.reads(x).run([&](Backend& backend, const auto& at) { answers[side++] = backend.all_finite(at(x)); });
  if (answers[0] != answers[1]) {
    fail("all_finite, {}: the {} backend says {}, the {} backend {}", text(x), subject_.name(), answers[0],
         reference_.name(), answers[1]);
  }
  return answers[0];
}

void CompareBackend::normalize_images(const Tensor& x, const Tensor& mean, const Tensor& std, const Tensor& y) {
  Comparison c(*this, "normalize_images", text(x));
  c.reads(x, mean, std).sets("y", y);
  c.run([&](Backend& backend, const auto& at) { backend.normalize_images(at(x), at(mean), at(std), at(y)); });
}

void CompareBackend::cast(const Tensor& x, const Tensor& y) {
  Comparison c(*this, "cast", text(x) + " to " + dtype_name(y.dtype()));
  c.reads(x).sets("y", y).run([&](Backend& backend, const auto& at) { backend.cast(at(x), at(y)); });
}

void CompareBackend::flatten(const Tensor& x, const Tensor& y) {
  Comparison c(*this, "flatten", text(x));
  c.reads(x).sets("y", y).run([&](Backend& backend, const auto& at) { backend.flatten(at(x), at(y)); });
}

void CompareBackend::unflatten(const Tensor& dy, const Tensor& dx) {
  Comparison c(*this, "unflatten", text(dx));
  c.reads(dy).sets("dx", dx).run([&](Backend& backend, const auto& at) { backend.unflatten(at(dy), at(dx)); });
}

void CompareBackend::relu_forward(const Tensor& x, const Tensor& y) {
  Comparison c(*this, "relu_forward", text(x));
  c.reads(x).sets("y", y).run([&](Backend& backend, const auto& at) { backend.relu_forward(at(x), at(y)); });
}

void CompareBackend::relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) {
  Comparison c(*this, "relu_backward", text(dy));
  c.reads(dy, y).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.relu_backward(at(dy), at(y), at(dx)); });
}

void CompareBackend::add(const Tensor& x, const Tensor& y) {
  Comparison c(*this, "add", text(x));
  c.reads(x).adds("y", y).run([&](Backend& backend, const auto& at) { backend.add(at(x), at(y)); });
}

void CompareBackend::scale(float factor, const Tensor& x) {
  Comparison c(*this, "scale", text(x));
  c.adds("x", x).run([&](Backend& backend, const auto& at) { backend.scale(factor, at(x)); });
}

void CompareBackend::axpy(float scale, const Tensor& x, const Tensor& y) {
  Comparison c(*this, "axpy", text(x));
  c.reads(x).adds("y", y).run([&](Backend& backend, const auto& at) { backend.axpy(scale, at(x), at(y)); });
}

}  // namespace convoy
