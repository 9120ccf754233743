// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of the compare backend.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string text(const Shape& input, const Weight& w) {
  return fmt::format("input {}, {} -> {} features", input.str(), w.layout->shape()[1], w.layout->shape()[0]);
}

}  // namespace

void CompareBackend::linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) {
  Comparison c(*this, "linear_forward",
               text(x.shape(), w) + (bias != nullptr ? ", bias" : "") + (relu ? ", relu" : ""));
  c.reads(x, w, bias).sets("y", y);
  c.run([&](Backend& backend, const auto& at) { backend.linear_forward(at(x), at(w), at(bias), relu, at(y)); });
}

void CompareBackend::linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) {
  Comparison c(*this, "linear_backward_input", text(dx.shape(), w));
  c.reads(dy, w).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.linear_backward_input(at(dy), at(w), at(dx)); });
}

void CompareBackend::linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight& w, const Tensor& dw,
                                            const Tensor& dbias, bool accumulate) {
  Comparison c(*this, "linear_backward_weight", text(x.shape(), w) + (accumulate ? ", accumulate" : ""));
  c.reads(x, dy, w).gradients(w, dw, dbias, accumulate);
  c.run([&](Backend& backend, const auto& at) {
    backend.linear_backward_weight(at(x), at(dy), at(w), at(dw), at(dbias), accumulate);
  });
}

}  // namespace convoy
