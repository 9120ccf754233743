// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's algorithms for matrix products, one per shape, chosen by its heuristics on first use and kept. Where it
// has none the bias is added apart, and else a kernel of our own does it all. Private to layers/backend/cuda.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/conv/matrix_product.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

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
  /// Null where cuBLAS has no algorithm.
  static std::unique_ptr<Plan> make_plan(const CudaState& state, const Key& key, const void* bias);

  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace convoy
