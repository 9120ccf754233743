// SPDX-License-Identifier: Apache-2.0
//
// Dropout of the CUDA backend. The position is read on the device, so that recorded work drops anew in each replay.
#include <algorithm>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"
#include "layers/base/random.h"

namespace convoy {

namespace {

using gpu::kThreads;

struct Draw {
  std::uint64_t stream, word, threshold;
  float scale;
  __device__ float operator()(float x, std::int64_t i) const {
    return x * (random_word(stream, word + static_cast<std::uint64_t>(i)) >= threshold ? scale : 0.0F);
  }
};

struct Parameters {
  const std::int64_t* position;
  std::uint64_t key, threshold;
  std::int64_t sample_size;
  float scale;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, Parameters p, std::int64_t vectors, std::int64_t count, T* y) {
  constexpr int kCount = gpu::kLanes<T>;
  const Draw draw{random_bits(p.key, static_cast<std::uint64_t>(p.position[0])),
                  static_cast<std::uint64_t>(p.position[1] * p.sample_size), p.threshold, p.scale};
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    auto values = gpu::load_vector<kCount>(x, i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      gpu::store(draw(gpu::load(values.lanes[lane]), i * kCount + lane), &values.lanes[lane]);
    }
    gpu::store_vector(values, y, i);
  }
  for (std::int64_t i = vectors * kCount + gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    gpu::store(draw(gpu::load(x[i]), i), y + i);
  }
}

}  // namespace

void CudaBackend::run(const ops::Dropout& op) {
  const std::int64_t count = op.x.size();
  if (count == 0) return;
  const Parameters p{op.position.data<std::int64_t>(), op.key, op.threshold(), op.x.shape().sample_size(), op.scale()};
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    const std::int64_t vectors = gpu::whole_vectors<T, T>(count, x, y);
    const std::int64_t items = std::max(vectors, count - vectors * gpu::kLanes<T>);
    gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, items), kThreads, dropout_kernel<T>, x, p, vectors, count, y);
  });
}

}  // namespace convoy
