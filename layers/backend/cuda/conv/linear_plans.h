// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's algorithms for matrix products, one per shape, chosen by its heuristics on first use and kept. Private to
// layers/backend/cuda.
#pragma once

#include <compare>
#include <map>
#include <memory>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

/// D [m, n] = op(A) op(B), op(A) [m, k], op(B) [k, n]: column-major without gaps, as cuBLAS has it.
struct MatrixProduct {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType in = DType::kF32, out = DType::kF32;  ///< of A and B, of D and the bias; sums are in float32
  bool bias = false;                          ///< a bias [m] is added to each column

  auto operator<=>(const MatrixProduct&) const = default;
};

class LinearPlans {
 public:
  LinearPlans();
  ~LinearPlans();

  /// Puts the product on the compute stream: d is set, or added to when `accumulate`. bias: null where the product has
  /// none.
  void run(CudaState& state, Backend& backend, const MatrixProduct& product, const void* a, const void* b,
           const void* bias, void* d, bool accumulate);

 private:
  struct Key {
    MatrixProduct product;
    std::uint32_t alignment;  ///< bytes, that all the pointers have
    auto operator<=>(const Key&) const = default;
  };
  struct Plan;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace convoy
