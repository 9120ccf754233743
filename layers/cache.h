// SPDX-License-Identifier: Apache-2.0
//
// Tensors that the layers of a model save between the forward and the backward of one microbatch. There is one cache
// per microbatch in flight. Of recomputed units it has only the input and the statistics of batch norms until their
// backward. Invariant: after both halves of the backward the cache is empty.
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
  /// Slots from this one on are for statistics and other small tensors, which a second forward of the microbatch does
  /// not compute again.
  static constexpr int kStatistics = 4;
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
    release_activations(0, static_cast<int>(entries_.size()));
    for (auto& entry : entries_) entry.fill({});
  }
  /// Drops what the layers first, first + 1, ... up to, not including, end have saved, except statistics.
  void release_activations(int first, int end);
  /// Position of the microbatch in the run, for layers that draw random numbers; otherwise empty. int64 [2]: the number
  /// of updates before this step, and the position in the epoch of the first sample.
  Tensor position;
  /// This microbatch's share of the step's samples: weighs its batch-norm statistics.
  float share = 1;
  /// Which forward of the microbatch is under way (recomputation: layers/model.h).
  enum class Pass {
    kOnly,
    kFirst,  ///< what layers save is dropped, except statistics
    kSecond  ///< the statistics are there, and are not added to those of the step again
  };
  Pass pass = Pass::kOnly;

 private:
  std::vector<Entry> entries_;
  std::vector<Shape> input_shapes_;
  std::vector<std::optional<PendingNorm>> pending_;
};

}  // namespace convoy
