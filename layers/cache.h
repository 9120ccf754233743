// SPDX-License-Identifier: Apache-2.0
//
// What the layers of a model keep of one microbatch between forward and backward: a few tensors per layer. There are as
// many caches as microbatches in flight. Invariant: after the (whole) backward of its microbatch a cache is empty.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "layers/base/tensor.h"

namespace convoy {

class Cache {
 public:
  static constexpr int kSlots = 6;
  using Entry = std::array<Tensor, kSlots>;

  explicit Cache(int layers)
      : entries_(static_cast<std::size_t>(layers)), input_shapes_(static_cast<std::size_t>(layers)) {}
  Entry& operator[](int layer) { return entries_[static_cast<std::size_t>(layer)]; }
  /// Of the layer's input, for layers whose backward cannot derive it from its output.
  Shape& input_shape(int layer) { return input_shapes_[static_cast<std::size_t>(layer)]; }
  /// Memory that is kept alive, each block once.
  [[nodiscard]] std::size_t bytes() const;
  void clear() {
    for (auto& entry : entries_) {
      for (auto& tensor : entry) tensor.reset();
    }
  }
  /// Where the microbatch stands in the run, for layers that draw random numbers; empty where none does. int64 [2]: the
  /// updates before this step, and the position in the epoch of the first sample.
  Tensor position;
  /// This microbatch's share of the step's samples: weighs its batch-norm statistics.
  float share = 1;

 private:
  std::vector<Entry> entries_;
  std::vector<Shape> input_shapes_;
};

}  // namespace convoy
