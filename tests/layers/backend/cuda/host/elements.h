// SPDX-License-Identifier: Apache-2.0
//
// Elements of imitated device memory, read and written as float64.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/backend/observe/host_values.h"

namespace convoy {

inline std::vector<double> numbers(const void* data, std::int64_t count, DType type) {
  return converted<double>({static_cast<const std::byte*>(data), static_cast<std::size_t>(count) * dtype_size(type)},
                           type);
}

inline void put(const std::vector<double>& values, void* data, DType type) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    switch (type) {
      case DType::kF32: static_cast<float*>(data)[i] = value; break;
      case DType::kBF16: static_cast<BFloat16*>(data)[i] = BFloat16(value); break;
      default: static_cast<Float16*>(data)[i] = Float16(value);
    }
  }
}

}  // namespace convoy
