// SPDX-License-Identifier: Apache-2.0
//
// A Tensor is a typed, shaped view of pooled backend memory; copies share the memory, and the last one
// gives it back. Tensors of rank 3 to 5 are channels-last in memory (NHWC) while their shape reads [N, C, H, W];
// all others are row-major. A default-constructed Tensor is empty and converts to false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "layers/base/memory_pool.h"
#include "layers/base/shape.h"

namespace convoy {

class Tensor {
 public:
  Tensor() = default;
  /// Takes over the one reference that MemoryPool::acquire gave.
  Tensor(Block* block, const Shape& shape, DType dtype) : block_(block), shape_(shape), dtype_(dtype) {}
  Tensor(const Tensor& other)
      : block_(other.block_), offset_(other.offset_), shape_(other.shape_), dtype_(other.dtype_) {
    if (block_ != nullptr) ++block_->references;
  }
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor() { reset(); }

  explicit operator bool() const { return block_ != nullptr; }
  void reset() noexcept {
    if (block_ != nullptr && --block_->references == 0) block_->pool->give_back(block_);
    block_ = nullptr;
  }

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t size() const { return shape_.size(); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size()) * dtype_size(dtype_); }
  [[nodiscard]] void* raw() const { return block_ ? static_cast<std::byte*>(block_->data) + offset_ : nullptr; }
  template <class T>
  [[nodiscard]] T* data() const {
    return static_cast<T*>(raw());
  }

  /// Whether no other tensor holds this memory or a part of it.
  [[nodiscard]] bool unshared() const { return block_ != nullptr && block_->references == 1; }

  /// The same memory under another shape of equally many elements (row-major meaning is the caller's care).
  [[nodiscard]] Tensor reshaped(const Shape& shape) const {
    Tensor view = *this;
    view.shape_ = shape;
    return view;
  }
  /// The same bytes as elements of another type.
  [[nodiscard]] Tensor as(const Shape& shape, DType dtype) const {
    Tensor view = reshaped(shape);
    view.dtype_ = dtype;
    return view;
  }
  /// `shape` elements of this memory from element `first` on.
  [[nodiscard]] Tensor view(std::int64_t first, const Shape& shape) const {
    Tensor part = reshaped(shape);
    part.offset_ += static_cast<std::size_t>(first) * dtype_size(dtype_);
    return part;
  }

 private:
  void swap(Tensor& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(offset_, other.offset_);
    std::swap(shape_, other.shape_);
    std::swap(dtype_, other.dtype_);
  }

  Block* block_ = nullptr;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace convoy
