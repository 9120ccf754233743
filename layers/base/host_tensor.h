// SPDX-License-Identifier: Apache-2.0
//
// A named array in ordinary host memory, row-major in its logical shape (a convolution weight is
// [out, in, kh, kw]): the form in which parameters, buffers and optimizer state enter and leave files.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/shape.h"

namespace convoy {

struct HostTensor {
  std::string name;  ///< dotted torchvision path, e.g. "layer1.0.conv1.weight"
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;  ///< empty: the values are elsewhere

  HostTensor() = default;
  HostTensor(std::string name_, const Shape& shape_, DType dtype_)
      : name(std::move(name_)),
        shape(shape_),
        dtype(dtype_),
        bytes(static_cast<std::size_t>(shape_.size()) * dtype_size(dtype_)) {}

  template <class T>
  [[nodiscard]] T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  /// Whether no value of a float32 tensor is infinite or NaN; true for other types.
  [[nodiscard]] bool all_finite() const {
    if (dtype != DType::kF32) return true;
    std::uint32_t nonfinite = 0;  // integers, so that the loop is vectorised
    for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      const auto word = std::bit_cast<std::uint32_t>(data<float>()[i]);
      nonfinite |= static_cast<std::uint32_t>((word & 0x7f800000U) == 0x7f800000U);
    }
    return nonfinite == 0;
  }
};

/// The name of the first tensor with a value that is infinite or NaN; empty if there is none.
[[nodiscard]] inline std::string first_nonfinite(const std::vector<HostTensor>& tensors) {
  for (const HostTensor& tensor : tensors) {
    if (!tensor.all_finite()) return tensor.name;
  }
  return "";
}

}  // namespace convoy
