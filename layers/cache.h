// SPDX-License-Identifier: Apache-2.0
//
// Tensors that the layers of a model save between the forward and the backward of one microbatch. There is one cache
// per microbatch in flight. Invariant: after both halves of the backward the cache is empty.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "layers/activation.h"
#include "layers/base/tensor.h"

namespace convoy {

class Cache {
 public:
  static constexpr int kSlots = 8;
  using Entry = std::array<Tensor, kSlots>;

  explicit Cache(int layers)
      : entries_(static_cast<std::size_t>(layers)),
        input_shapes_(static_cast<std::size_t>(layers)),
        pending_(static_cast<std::size_t>(layers)) {}
  Entry& operator[](int layer) { return entries_[static_cast<std::size_t>(layer)]; }
  /// Of the layer's input, for layers whose backward cannot derive it from its output.
  Shape& input_shape(int layer) { return input_shapes_[static_cast<std::size_t>(layer)]; }
  /// The batch norm that was pending on the layer's input, if its output was never stored.
  std::optional<PendingNorm>& pending(int layer) { return pending_[static_cast<std::size_t>(layer)]; }
  /// Bytes of memory that the cache keeps alive, each block counted once.
  [[nodiscard]] std::size_t bytes() const;
  void clear() {
    for (auto& entry : entries_) {
      for (auto& tensor : entry) tensor.reset();
    }
    for (auto& norm : pending_) norm.reset();
  }
  /// Position of the microbatch in the run, for layers that draw random numbers; otherwise empty. int64 [2]: the number
  /// of updates before this step, and the position in the epoch of the first sample.
  Tensor position;
  /// This microbatch's share of the step's samples: weighs its batch-norm statistics.
  float share = 1;

 private:
  std::vector<Entry> entries_;
  std::vector<Shape> input_shapes_;
  std::vector<std::optional<PendingNorm>> pending_;
};

}  // namespace convoy
