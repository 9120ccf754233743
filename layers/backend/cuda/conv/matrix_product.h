// SPDX-License-Identifier: Apache-2.0
//
// What a linear layer asks of cuBLAS, and own kernels for what cuBLAS has no algorithm for. Private to
// layers/backend/cuda.
#pragma once

#include <compare>
#include <cstdint>

#include "layers/backend/cuda/cuda_state.h"
#include "layers/base/shape.h"

namespace convoy {

/// D [m, n] = op(A) op(B), op(A) [m, k], op(B) [k, n]: column-major without gaps, as cuBLAS has it.
struct MatrixProduct {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  DType in = DType::kF32, out = DType::kF32;  ///< of A and B, of D and the bias; sums are in float32
  bool bias = false;                          ///< a bias [m] is added to each column

  auto operator<=>(const MatrixProduct&) const = default;
};

namespace gpu {

/// The product, one thread for each element of D: slow, for any shape. bias: null where it has none. d is set, or added
/// to when `accumulate`.
void matrix_product(const CudaState& state, const MatrixProduct& product, const void* a, const void* b,
                    const void* bias, void* d, bool accumulate);
/// Adds the bias to each column of d.
void add_to_columns(const CudaState& state, const MatrixProduct& product, const void* bias, void* d);

}  // namespace gpu

}  // namespace convoy
