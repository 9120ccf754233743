// SPDX-License-Identifier: Apache-2.0
//
// Element-wise kernels of the CUDA backend and those that only move elements; outputs may be inputs of the same type.
#include <algorithm>
#include <type_traits>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::load;
using gpu::store;
using gpu::Vector;

template <class Out, int kCount, class Op, class... In>
__device__ Vector<Out, kCount> map_vector(Op op, const Vector<In, kCount>&... in) {
  Vector<Out, kCount> out;
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) store(op(load(in.lanes[lane])...), &out.lanes[lane]);
  return out;
}

template <class Op, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map_kernel(Op op, std::int64_t vectors, std::int64_t count, Out* out, const In*... in) {
  constexpr int kCount = gpu::kLanes<Out, In...>;
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    gpu::store_vector(map_vector<Out, kCount>(op, gpu::load_vector<kCount>(in, i)...), out, i);
  }
  for (std::int64_t i = vectors * kCount + gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    store(op(load(in[i])...), out + i);
  }
}

// out[i] = op(in[i]...) for all i < count.
template <class Op, class Out, class... In>
void map(const CudaState& state, Op op, std::int64_t count, Out* out, const In*... in) {
  if (count == 0) return;
  const std::int64_t vectors = gpu::whole_vectors<Out, In...>(count, out, in...);
  const std::int64_t items = std::max(vectors, count - vectors * gpu::kLanes<Out, In...>);
  gpu::launch_kernel(state, gpu::grid_blocks(state, items), kThreads, map_kernel<Op, Out, In...>, op, vectors, count,
                     out, in...);
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Relu {
  __device__ float operator()(float x) const { return gpu::positive_part(x); }
};
struct ReluBackward {
  __device__ float operator()(float dy, float y) const { return y <= 0.0F ? 0.0F : dy; }
};
struct Add {
  __device__ float operator()(float y, float x) const { return y + x; }
};
struct AddMasked {
  __device__ float operator()(float sum, float dy, float y) const { return y <= 0.0F ? sum : sum + dy; }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Axpy {
  float scale;
  __device__ float operator()(float y, float x) const { return gpu::add_product(y, scale, x); }
};

struct Lerp {
  float weight;
  __device__ float operator()(float y, float x) const { return gpu::add_product(y, weight, x - y); }
};

__global__ void __launch_bounds__(kThreads)
    exchange_kernel(float* x, float* y, std::int64_t vectors, std::int64_t count) {
  constexpr int kCount = gpu::kLanes<float>;
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    const auto a = gpu::load_vector<kCount>(x, i), b = gpu::load_vector<kCount>(y, i);
    gpu::store_vector(b, x, i);
    gpu::store_vector(a, y, i);
  }
  for (std::int64_t i = vectors * kCount + gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const float a = x[i];
    x[i] = y[i];
    y[i] = a;
  }
}

// The functions of ActivationFunction, and dy times their slopes at x.
__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
  __device__ float operator()(float dy, float x) const {
    const float y = tanhf(x);
    return dy * (1.0F - y * y);
  }
};
struct Sigmoid {
  __device__ float operator()(float x) const { return sigmoid(x); }
  __device__ float operator()(float dy, float x) const {
    const float y = sigmoid(x);
    return dy * (y * (1.0F - y));
  }
};
struct Gelu {
  __device__ float operator()(float x) const { return x * normcdff(x); }
  __device__ float operator()(float dy, float x) const {
    constexpr float kDensity = 0.39894228F;  // of the normal distribution at 0: 1 / sqrt(2 pi)
    return dy * (normcdff(x) + x * kDensity * expf(-0.5F * x * x));
  }
};
struct Silu {
  __device__ float operator()(float x) const { return x * sigmoid(x); }
  __device__ float operator()(float dy, float x) const {
    const float s = sigmoid(x);
    return dy * (s * (1.0F + x * (1.0F - s)));
  }
};

template <class Body>
void dispatch_function(ActivationFunction function, Body&& body) {
  switch (function) {
    case ActivationFunction::kTanh: return body(Tanh{});
    case ActivationFunction::kSigmoid: return body(Sigmoid{});
    case ActivationFunction::kGelu: return body(Gelu{});
    case ActivationFunction::kSilu: return body(Silu{});
  }
}

constexpr int kTile = 32, kTileRows = 8;  // a block moves kTile x kTile elements, kTileRows rows of them at a time

// Sets to [N, b, a] from from [N, a, b], by tiles in shared memory, so that both sides are read and written in rows.
template <class Word>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(const Word* from, Word* to, std::int64_t tiles, std::int64_t a, std::int64_t b) {
  CONVOY_SHARED(Word, tile, [kTile][kTile + 1]);  // + 1: a column lies in as many banks as a row
  const std::int64_t tiles_a = (a + kTile - 1) / kTile, tiles_b = (b + kTile - 1) / kTile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t sample = t / (tiles_a * tiles_b) * a * b;
    const std::int64_t first_a = t / tiles_b % tiles_a * kTile, first_b = t % tiles_b * kTile;
    for (int row = y; row < kTile; row += kTileRows) {
      const std::int64_t i = first_a + row, j = first_b + x;
      if (i < a && j < b) tile[row][x] = from[sample + i * b + j];
    }
    __syncthreads();
    for (int row = y; row < kTile; row += kTileRows) {
      const std::int64_t i = first_a + x, j = first_b + row;
      if (i < a && j < b) to[sample + j * a + i] = tile[x][row];
    }
    __syncthreads();
  }
}

// `image` is the shape [N, C, H, W] of either x or y, of the same element type.
void transpose_image(const CudaState& state, const Tensor& x, const Tensor& y, const Shape& image,
                     bool to_channels_first) {
  if (y.size() == 0) return;
  const std::int64_t channels = image[1], pixels = image[2] * image[3];
  const std::int64_t a = to_channels_first ? pixels : channels, b = to_channels_first ? channels : pixels;
  if (a == 1 || b == 1) {
    CONVOY_CUDA_CHECK(cudaMemcpyAsync(y.raw(), x.raw(), y.bytes(), cudaMemcpyDeviceToDevice, state.stream));
    return;
  }
  const std::int64_t tiles = image[0] * ((a + kTile - 1) / kTile) * ((b + kTile - 1) / kTile);
  const unsigned blocks = gpu::grid_blocks(state, tiles, 1);
  gpu::dispatch_activation(x.dtype(), [&](auto type) {
    using Word = std::conditional_t<sizeof(type) == 2, std::uint16_t, std::uint32_t>;
    gpu::launch_kernel(state, blocks, dim3(kTile, kTileRows), transpose_kernel<Word>, x.data<Word>(), y.data<Word>(),
                       tiles, a, b);
  });
}

__device__ bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000U) != 0x7f800000U; }

// Sets *found to 1 where there is such a value: all threads write the same.
__global__ void __launch_bounds__(kThreads)
    find_not_finite_kernel(const float* x, std::int64_t vectors, std::int64_t count, std::uint8_t* found) {
  constexpr int kCount = gpu::kLanes<float>;
  bool finite = true;
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    const auto in = gpu::load_vector<kCount>(x, i);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) finite &= is_finite(in.lanes[lane]);
  }
  for (std::int64_t i = vectors * kCount + gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    finite &= is_finite(x[i]);
  }
  if (!finite) *found = 1;
}

}  // namespace

void CudaBackend::run(const ops::Cast& op) {
  gpu::dispatch_activation(op.x.dtype(), [&](auto from) {
    gpu::dispatch_activation(op.y.dtype(), [&](auto to) {
      map(*state_, Same{}, op.x.size(), op.y.data<decltype(to)>(), op.x.data<const decltype(from)>());
    });
  });
}

void CudaBackend::run(const ops::Flatten& op) { transpose_image(*state_, op.x, op.y, op.x.shape(), true); }

void CudaBackend::run(const ops::Unflatten& op) { transpose_image(*state_, op.dy, op.dx, op.dx.shape(), false); }

void CudaBackend::run(const ops::ReluForward& op) {
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    map(*state_, Relu{}, op.x.size(), op.y.data<T>(), op.x.data<const T>());
  });
}

void CudaBackend::run(const ops::ReluBackward& op) {
  gpu::dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    map(*state_, ReluBackward{}, op.dy.size(), op.dx.data<T>(), op.dy.data<const T>(), op.y.data<const T>());
  });
}

void CudaBackend::run(const ops::ActivationForward& op) {
  dispatch_function(op.function, [&](auto function) {
    gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      map(*state_, function, op.x.size(), op.y.data<T>(), op.x.data<const T>());
    });
  });
}

void CudaBackend::run(const ops::ActivationBackward& op) {
  dispatch_function(op.function, [&](auto function) {
    gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
      using T = decltype(type);
      map(*state_, function, op.x.size(), op.dx.data<T>(), op.dy.data<const T>(), op.x.data<const T>());
    });
  });
}

void CudaBackend::run(const ops::BatchNormBackwardResidual& op) {
  if (!op.mask) return run(ops::Add{op.dy, op.dresidual});
  gpu::dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    T* sum = op.dresidual.data<T>();
    map(*state_, AddMasked{}, op.dy.size(), sum, op.dresidual.data<const T>(), op.dy.data<const T>(),
        op.mask.data<const T>());
  });
}

void CudaBackend::run(const ops::Add& op) {
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    map(*state_, Add{}, op.x.size(), op.y.data<T>(), op.y.data<const T>(), op.x.data<const T>());
  });
}

void CudaBackend::run(const ops::Scale& op) {
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    map(*state_, Scale{op.factor}, op.x.size(), op.y.data<T>(), op.x.data<const T>());
  });
}

void CudaBackend::run(const ops::Axpy& op) {
  map(*state_, Axpy{op.scale}, op.x.size(), op.y.data<float>(), op.y.data<const float>(), op.x.data<const float>());
}

void CudaBackend::run(const ops::Lerp& op) {
  map(*state_, Lerp{op.weight}, op.x.size(), op.y.data<float>(), op.y.data<const float>(), op.x.data<const float>());
}

void CudaBackend::run(const ops::Exchange& op) {
  if (op.x.size() == 0) return;
  float *x = op.x.data<float>(), *y = op.y.data<float>();
  const std::int64_t vectors = gpu::whole_vectors<float, float>(op.x.size(), x, y);
  const std::int64_t items = std::max(vectors, op.x.size() - vectors * gpu::kLanes<float>);
  gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, items), kThreads, exchange_kernel, x, y, vectors, op.x.size());
}

bool CudaBackend::all_finite(const Tensor& x) {
  if (x.size() == 0) return true;
  const Tensor flag = tensor({1}, DType::kU8);
  zero(flag);
  const auto* values = x.data<float>();
  const std::int64_t vectors = gpu::whole_vectors(x.size(), values);
  const std::int64_t items = std::max(vectors, x.size() - vectors * gpu::kLanes<float>);
  gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, items), kThreads, find_not_finite_kernel, values, vectors,
                     x.size(), flag.data<std::uint8_t>());
  std::uint8_t found = 0;
  copy_to_host(flag, &found);
  return found == 0;
}

}  // namespace convoy
