// SPDX-License-Identifier: Apache-2.0
//
// Host tensors for tests of communication, without a backend: a pool over malloc, and values that are small
// integers, whose sums are exact in every floating-point type and so can be compared bit for bit.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "layers/base/tensor.h"

namespace convoy {

class MallocMemory final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == nullptr) throw std::bad_alloc();
    return data;
  }
  void release(void* data) noexcept override { std::free(data); }
};

class TestTensors {
 public:
  Tensor tensor(const Shape& shape, DType dtype) {
    const auto bytes = static_cast<std::size_t>(shape.size()) * dtype_size(dtype);
    return {pool_.acquire(bytes), shape, dtype};
  }
  template <class T>
  Tensor tensor(const std::vector<T>& values, DType dtype) {
    Tensor result = tensor({static_cast<std::int64_t>(values.size())}, dtype);
    std::copy(values.begin(), values.end(), result.data<T>());
    return result;
  }

 private:
  MallocMemory memory_;
  MemoryPool pool_{memory_};
};

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  return {tensor.data<T>(), tensor.data<T>() + tensor.size()};
}

/// A small integer that depends on the rank and the place.
inline int sample_value(int rank, std::int64_t index) {
  return static_cast<int>((static_cast<std::int64_t>(rank) * 31 + index * 7) % 50);
}

}  // namespace convoy
