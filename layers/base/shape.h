// SPDX-License-Identifier: Apache-2.0
//
// Element types and shapes. A Shape is logical: images are always [N, C, H, W] here, whatever the
// order in memory (channels-last from rank 3 on, see tensor.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace convoy {

enum class DType : std::uint8_t { kF32, kF64, kBF16, kF16, kU8, kI64 };

/// Bytes of one element.
[[nodiscard]] std::size_t dtype_size(DType dtype);
/// "float32", "bfloat16", ...
[[nodiscard]] const char* dtype_name(DType dtype);

/// Up to five extents. Rank 0 is a scalar with one element.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  /// Copies `rank` extents; throws when rank > kMaxRank.
  Shape(const std::int64_t* dims, int rank);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  void set(int axis, std::int64_t extent) { dims_[static_cast<std::size_t>(axis)] = extent; }
  /// Number of elements.
  [[nodiscard]] std::int64_t size() const;
  /// Elements of one sample: everything but the first axis.
  [[nodiscard]] std::int64_t sample_size() const { return rank_ == 0 ? 1 : size_from(1); }
  /// Positions at which a sample [N, C, ...] has its channels: all extents after C; 1 for [N, C].
  [[nodiscard]] std::int64_t pixels() const { return size_from(2); }
  /// The same shape with another first extent (another batch size).
  [[nodiscard]] Shape with_batch(std::int64_t batch) const;
  /// "[16, 64, 8, 8]"
  [[nodiscard]] std::string str() const;

  bool operator==(const Shape& other) const = default;

 private:
  [[nodiscard]] std::int64_t size_from(int axis) const;
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace convoy
