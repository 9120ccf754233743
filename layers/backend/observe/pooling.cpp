// SPDX-License-Identifier: Apache-2.0
//
// Pooling of the compare backend. Positions of maxima mean the same to all backends, so the reference's backward gets
// those of the subject.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string text(const PoolSpec& spec, const Tensor& input) {
  return fmt::format("input {}, {}x{}, stride {}, padding {}", input.shape().str(), spec.kernel, spec.kernel,
                     spec.stride, spec.padding);
}

}  // namespace

void CompareBackend::max_pool_forward(const PoolSpec& spec, const Tensor& x, const Tensor& y, const Tensor& argmax) {
  Comparison c(*this, "max_pool_forward", text(spec, x));
  c.reads(x).sets("y", y).sets("argmax", argmax);
  c.run([&](Backend& backend, const auto& at) { backend.max_pool_forward(spec, at(x), at(y), at(argmax)); });
}

void CompareBackend::max_pool_backward(const PoolSpec& spec, const Tensor& dy, const Tensor& argmax, const Tensor& dx) {
  Comparison c(*this, "max_pool_backward", text(spec, dx));
  c.reads(dy, argmax).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.max_pool_backward(spec, at(dy), at(argmax), at(dx)); });
}

void CompareBackend::global_avg_pool_forward(const Tensor& x, const Tensor& y) {
  Comparison c(*this, "global_avg_pool_forward", "input " + x.shape().str());
  c.reads(x).sets("y", y);
  c.run([&](Backend& backend, const auto& at) { backend.global_avg_pool_forward(at(x), at(y)); });
}

void CompareBackend::global_avg_pool_backward(const Tensor& dy, const Tensor& dx) {
  Comparison c(*this, "global_avg_pool_backward", "input " + dx.shape().str());
  c.reads(dy).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.global_avg_pool_backward(at(dy), at(dx)); });
}

}  // namespace convoy
