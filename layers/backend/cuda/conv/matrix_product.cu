// SPDX-License-Identifier: Apache-2.0
//
// Matrix products for the shapes that cuBLAS has no algorithm for (some of a few odd numbers in 16 bits).
#include "layers/backend/cuda/conv/matrix_product.h"

#include "layers/backend/cuda/channel_rows.cuh"

namespace convoy::gpu {

namespace {

template <class In, class Out>
__global__ void __launch_bounds__(kThreads)
    product_kernel(MatrixProduct p, const In* a, const In* b, const Out* bias, Out* d, bool accumulate) {
  for (std::int64_t i = grid_thread(); i < p.m * p.n; i += grid_threads()) {
    const std::int64_t column = i / p.m, row = i - column * p.m;
    float sum = bias != nullptr ? load(bias[row]) : 0.0F;
    for (std::int64_t j = 0; j < p.k; ++j) {
      const float left = load(a[p.transpose_a ? row * p.k + j : j * p.m + row]);
      const float right = load(b[p.transpose_b ? j * p.n + column : column * p.k + j]);
      sum = fmaf(left, right, sum);
    }
    store(accumulate ? load(d[i]) + sum : sum, &d[i]);
  }
}

template <class Out>
__global__ void __launch_bounds__(kThreads) bias_kernel(MatrixProduct p, const Out* bias, Out* d) {
  for (std::int64_t i = grid_thread(); i < p.m * p.n; i += grid_threads()) {
    store(load(d[i]) + load(bias[i % p.m]), &d[i]);
  }
}

// use(element of A and B, element of D)
template <class Use>
void dispatch_product(const MatrixProduct& p, const Use& use) {
  dispatch_activation(p.in, [&](auto in) {
    if (p.out == p.in) {
      use(in, in);
    } else {
      use(in, float());
    }
  });
}

}  // namespace

void matrix_product(const CudaState& state, const MatrixProduct& p, const void* a, const void* b, const void* bias,
                    void* d, bool accumulate) {
  dispatch_product(p, [&](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    launch_kernel(state, grid_blocks(state, p.m * p.n), kThreads, product_kernel<In, Out>, p, static_cast<const In*>(a),
                  static_cast<const In*>(b), static_cast<const Out*>(bias), static_cast<Out*>(d), accumulate);
  });
}

void add_to_columns(const CudaState& state, const MatrixProduct& p, const void* bias, void* d) {
  dispatch_product(p, [&](auto, auto out) {
    using Out = decltype(out);
    launch_kernel(state, grid_blocks(state, p.m * p.n), kThreads, bias_kernel<Out>, p, static_cast<const Out*>(bias),
                  static_cast<Out*>(d));
  });
}

}  // namespace convoy::gpu
