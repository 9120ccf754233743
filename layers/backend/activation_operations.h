// SPDX-License-Identifier: Apache-2.0
//
// Smooth activation functions, element by element: tanh, sigmoid, GELU and SiLU. ReLU has operations of its own
// (elementwise_operations.h), since its gradient needs only the output.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "layers/backend/operation.h"

namespace convoy {

enum class ActivationFunction {
  kTanh,     ///< torch.nn.Tanh
  kSigmoid,  ///< torch.nn.Sigmoid: 1 / (1 + e^-x)
  kGelu,     ///< torch.nn.GELU (Hendrycks & Gimpel 2016): x times the normal distribution function of x
  kSilu      ///< torch.nn.SiLU (Elfwing et al. 2017): x * sigmoid(x)
};
inline constexpr auto kActivationNames = std::to_array<std::string_view>({"tanh", "sigmoid", "gelu", "silu"});
[[nodiscard]] constexpr std::string_view activation_name(ActivationFunction function) {
  return kActivationNames[static_cast<std::size_t>(function)];
}

}  // namespace convoy

namespace convoy::ops {

/// Sets y = f(x), any shape.
struct ActivationForward {
  static constexpr const char* kName = "activation_forward";
  ActivationFunction function;
  In x;
  Out y;
  template <class V>
  ActivationForward visit(V& v) const {
    return {function, v.in(x), v.out("y", y)};
  }
  [[nodiscard]] std::string detail() const { return std::string(activation_name(function)) + " " + x.shape().str(); }
};

/// Sets dx = dy * f'(x); dx may be x or dy.
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";
  ActivationFunction function;
  In dy, x;
  Out dx;
  template <class V>
  ActivationBackward visit(V& v) const {
    return {function, v.in(dy), v.in(x), v.out("dx", dx)};
  }
  [[nodiscard]] std::string detail() const { return std::string(activation_name(function)) + " " + x.shape().str(); }
};

}  // namespace convoy::ops

// The operations above (operations.h).
#define CONVOY_ACTIVATION_OPERATIONS(X) \
  X(ActivationForward)                  \
  X(ActivationBackward)
