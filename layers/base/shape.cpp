// SPDX-License-Identifier: Apache-2.0
#include "layers/base/shape.h"

#include <algorithm>

#include "layers/base/error.h"

namespace convoy {

std::size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kF64: return 8;
    case DType::kBF16: return 2;
    case DType::kF16: return 2;
    case DType::kU8: return 1;
    case DType::kI64: return 8;
  }
  fail("unknown element type {}", static_cast<int>(dtype));
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kF64: return "float64";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kU8: return "uint8";
    case DType::kI64: return "int64";
  }
  return "?";
}

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(dims.begin(), static_cast<int>(dims.size())) {}

Shape::Shape(const std::int64_t* dims, int rank) : rank_(rank) {
  if (rank > kMaxRank) fail("a shape has {} axes, more than the {} that are supported", rank, kMaxRank);
  std::copy(dims, dims + rank, dims_.begin());
}

std::int64_t Shape::size_from(int axis) const {
  std::int64_t product = 1;
  for (int i = axis; i < rank_; ++i) product *= dims_[static_cast<std::size_t>(i)];
  return product;
}

std::int64_t Shape::size() const { return size_from(0); }

Shape Shape::with_batch(std::int64_t batch) const {
  Shape result = *this;
  result.set(0, batch);
  return result;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i ? ", " : "", dims_[static_cast<std::size_t>(i)]);
  return text + "]";
}

}  // namespace convoy
