// SPDX-License-Identifier: Apache-2.0
//
// Linear layers and convolutions. x, w, y have the compute type; products are accumulated in float32.
#pragma once

#include <string>

#include "layers/backend/normalization_operations.h"

namespace convoy::ops {

// ---- linear layers: x [N, in], y [N, out], weight [out, in]

/// Sets y = x w^T + bias, then max(0, y) with relu.
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  In x;
  const Weight& w;
  const Weight* bias = nullptr;
  bool relu = false;
  Out y;
  template <class V>
  LinearForward visit(V& v) const {
    return {v.in(x), v.in(w), v.in(bias), relu, v.out("y", y)};
  }
  [[nodiscard]] std::string detail() const { return linear_detail(w, y); }
  [[nodiscard]] double flops() const { return linear_flops(w, y); }
};

/// Sets dx = dy w.
struct LinearBackwardInput {
  static constexpr const char* kName = "linear_backward_input";
  In dy;
  const Weight& w;
  Out dx;
  template <class V>
  LinearBackwardInput visit(V& v) const {
    return {v.in(dy), v.in(w), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return linear_detail(w, dy); }
  [[nodiscard]] double flops() const { return linear_flops(w, dy); }
};

/// dw = dy^T x in the layout of w, dbias = the sum of dy over N: set, or added to with accumulate. dbias may be empty.
struct LinearBackwardWeight {
  static constexpr const char* kName = "linear_backward_weight";
  In x, dy;
  const Weight& w;
  InOut dw, dbias;
  bool accumulate = false;
  template <class V>
  LinearBackwardWeight visit(V& v) const {
    return {v.in(x),   v.in(dy), v.in(w), v.gradient("dw", dw, w, accumulate), v.gradient("dbias", dbias, accumulate),
            accumulate};
  }
  [[nodiscard]] std::string detail() const { return linear_detail(w, dy); }
  [[nodiscard]] double flops() const { return linear_flops(w, dy); }
};

// ---- convolutions; the rules are those of linear layers

/// Sets y, the cross-correlation of x with w (torch.nn.functional.conv2d).
struct Conv2dForward {
  static constexpr const char* kName = "conv2d_forward";
  const Conv2dSpec& spec;
  In x;
  const Weight& w;
  const Weight* bias = nullptr;
  Out y;
  const BatchNormApply* prologue = nullptr;       ///< sets x, which may be empty then
  const BatchNormStatistics* epilogue = nullptr;  ///< of y
  template <class V>
  Conv2dForward visit(V& v) const {
    const BatchNormApply* first = visit_part(v, prologue);
    return {spec, v.in(x), v.in(w), v.in(bias), v.out("y", y), first, visit_part(v, epilogue)};
  }
  /// Without its parts, of x.
  [[nodiscard]] Conv2dForward alone(In values) const { return {spec, values, w, bias, y}; }
  [[nodiscard]] std::string detail() const { return conv2d_detail(spec, input_shape()); }
  [[nodiscard]] double flops() const { return conv2d_flops(spec, y); }
  [[nodiscard]] const Shape& input_shape() const { return prologue != nullptr ? prologue->x.shape() : x.shape(); }
};

/// Sets dx, the gradient of the input, plus residual.
struct Conv2dBackwardInput {
  static constexpr const char* kName = "conv2d_backward_input";
  const Conv2dSpec& spec;
  In dy;
  const Weight& w;
  Out dx;
  In residual = none();                               ///< the gradient by another path; may be dx
  const BatchNormBackwardReduce* epilogue = nullptr;  ///< of dx, which it masks
  template <class V>
  Conv2dBackwardInput visit(V& v) const {
    const Tensor &gradient = v.in(dy), &other = v.in(residual);
    const Weight& weight = v.in(w);
    const Tensor& result = v.out("dx", dx);
    return {spec, gradient, weight, result, other, visit_part(v, epilogue)};
  }
  /// Without its epilogue.
  [[nodiscard]] Conv2dBackwardInput alone() const { return {spec, dy, w, dx, residual}; }
  [[nodiscard]] std::string detail() const { return conv2d_detail(spec, dx.shape()); }
  [[nodiscard]] double flops() const { return conv2d_flops(spec, dy); }
};

struct Conv2dBackwardWeight {
  static constexpr const char* kName = "conv2d_backward_weight";
  const Conv2dSpec& spec;
  In x, dy;
  const Weight& w;
  InOut dw, dbias;
  bool accumulate = false;
  const BatchNormApply* prologue = nullptr;  ///< sets x, which may be empty then
  template <class V>
  Conv2dBackwardWeight visit(V& v) const {
    const BatchNormApply* first = visit_part(v, prologue);
    return {spec,
            v.in(x),
            v.in(dy),
            v.in(w),
            v.gradient("dw", dw, w, accumulate),
            v.gradient("dbias", dbias, accumulate),
            accumulate,
            first};
  }
  /// Without its prologue, of x.
  [[nodiscard]] Conv2dBackwardWeight alone(In values) const { return {spec, values, dy, w, dw, dbias, accumulate}; }
  [[nodiscard]] std::string detail() const { return conv2d_detail(spec, input_shape()); }
  [[nodiscard]] double flops() const { return conv2d_flops(spec, dy); }
  [[nodiscard]] const Shape& input_shape() const { return prologue != nullptr ? prologue->x.shape() : x.shape(); }
};

}  // namespace convoy::ops

// The operations above (operations.h).
#define CONVOY_DENSE_OPERATIONS(X) \
  X(LinearForward)                 \
  X(LinearBackwardInput)           \
  X(LinearBackwardWeight)          \
  X(Conv2dForward)                 \
  X(Conv2dBackwardInput)           \
  X(Conv2dBackwardWeight)
