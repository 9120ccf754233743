// SPDX-License-Identifier: Apache-2.0
//
// Values of backend tensors on the host, and how far two rows of them are apart. Everything stays in memory order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/backend/observe/float16.h"
#include "layers/backend/onednn/bfloat16.h"
#include "layers/base/error.h"

namespace convoy {

/// The bytes of a tensor.
inline std::vector<std::byte> host_bytes(Backend& backend, const Tensor& x) {
  std::vector<std::byte> bytes(x.bytes());
  backend.copy_to_host(x, bytes.data());
  return bytes;
}

/// Elements of type Stored as To (float or double).
template <class To, class Stored>
std::vector<To> converted(std::span<const std::byte> bytes) {
  std::vector<To> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    if constexpr (sizeof(Stored) == 2) {
      values[i] = static_cast<float>(stored);
    } else {
      values[i] = static_cast<To>(stored);
    }
  }
  return values;
}

template <class To>
std::vector<To> converted(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32: return converted<To, float>(bytes);
    case DType::kF64: return converted<To, double>(bytes);
    case DType::kBF16: return converted<To, BFloat16>(bytes);
    case DType::kF16: return converted<To, Float16>(bytes);
    case DType::kU8: return converted<To, std::uint8_t>(bytes);
    case DType::kI64: return converted<To, std::int64_t>(bytes);
  }
  fail("unknown element type {}", static_cast<int>(dtype));
}

/// Rounds to what `dtype` can hold; nothing for float32.
inline void round_to(DType dtype, std::span<float> values) {
  for (float& value : values) {
    if (dtype == DType::kBF16) value = static_cast<float>(BFloat16(value));
    if (dtype == DType::kF16) value = static_cast<float>(Float16(value));
  }
}

inline std::int64_t nonzeros(std::span<const float> values) {
  std::int64_t count = 0;
  for (const float value : values) count += value != 0.0F ? 1 : 0;
  return count;
}

struct Difference {
  double size = 0;            ///< |actual - expected| / |expected|, Euclidean; infinite where one alone is not finite
  bool absolute = false;      ///< |expected| is 0 and was left out
  std::int64_t element = -1;  ///< the first that differs by more than its part of the tolerance, if size exceeds it
};

/// Of two equally long rows. NaN equals NaN, an infinity its like.
inline Difference difference(std::span<const double> actual, std::span<const double> expected, double tolerance) {
  const auto gap = [&](std::size_t i) {
    const double a = actual[i], e = expected[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) return 0.0;
    const double distance = std::abs(a - e);
    return std::isnan(distance) ? INFINITY : distance;
  };
  double gaps = 0, squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    gaps += gap(i) * gap(i);
    if (std::isfinite(expected[i])) squares += expected[i] * expected[i];
  }
  Difference result;
  result.absolute = squares == 0;
  const double scale = result.absolute ? 1 : std::sqrt(squares);
  result.size = std::sqrt(gaps) / scale;
  if (!(result.size > tolerance)) return result;
  // One at least has more than the equal part; the factor keeps that true under rounding.
  const double part = 0.999 * tolerance * scale / std::sqrt(static_cast<double>(expected.size()));
  std::size_t first = 0;
  while (first + 1 < expected.size() && !(gap(first) > part)) ++first;
  result.element = static_cast<std::int64_t>(first);
  return result;
}

}  // namespace convoy
