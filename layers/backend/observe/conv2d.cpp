// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the compare backend.
#include "layers/backend/observe/comparison.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string text(const Conv2dSpec& spec, const Shape& input) {
  return fmt::format("input {}, {} -> {} channels, {}x{}, stride {}{}", input.str(), spec.in_channels,
                     spec.out_channels, spec.kernel, spec.kernel, spec.stride,
                     spec.padding > 0 ? fmt::format(", padding {}", spec.padding) : "");
}

}  // namespace

void CompareBackend::conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                                    const Tensor& y) {
  Comparison c(*this, "conv2d_forward", text(spec, x.shape()) + (bias != nullptr ? ", bias" : ""));
  c.reads(x, w, bias).sets("y", y);
  c.run([&](Backend& backend, const auto& at) { backend.conv2d_forward(spec, at(x), at(w), at(bias), at(y)); });
}

void CompareBackend::conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w,
                                           const Tensor& dx) {
  Comparison c(*this, "conv2d_backward_input", text(spec, dx.shape()));
  c.reads(dy, w).sets("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.conv2d_backward_input(spec, at(dy), at(w), at(dx)); });
}

void CompareBackend::conv2d_backward_input_add(const Conv2dSpec& spec, const Tensor& dy, const Weight& w,
                                               const Tensor& dx) {
  Comparison c(*this, "conv2d_backward_input_add", text(spec, dx.shape()));
  c.reads(dy, w).adds("dx", dx);
  c.run([&](Backend& backend, const auto& at) { backend.conv2d_backward_input_add(spec, at(dy), at(w), at(dx)); });
}

void CompareBackend::conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                                            const Tensor& dw, const Tensor& dbias, bool accumulate) {
  Comparison c(*this, "conv2d_backward_weight", text(spec, x.shape()) + (accumulate ? ", accumulate" : ""));
  c.reads(x, dy, w).gradients(w, dw, dbias, accumulate);
  c.run([&](Backend& backend, const auto& at) {
    backend.conv2d_backward_weight(spec, at(x), at(dy), at(w), at(dw), at(dbias), accumulate);
  });
}

}  // namespace convoy
