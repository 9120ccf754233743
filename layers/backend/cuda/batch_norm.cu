// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CUDA backend, forward: one pass for the statistics, one for everything else. As on the CPU
// variances are sums of squares around a pivot that follows the running mean, merged by Chan's formula, so that float
// is enough whatever |mean| / std is. A thread keeps its mean as the distance from its first rows' mean, a slice's is
// known as the distance from the slice's first row, and slices are merged in double.
#include "layers/backend/cuda/batch_norm.cuh"
#include "layers/backend/cuda/cuda_backend.h"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::load_lanes;
using gpu::NormInputs;
using gpu::RowSlices;
using gpu::RowTiles;
using gpu::Vector;

constexpr int kTogether = 4;    // rows whose loads are under way at once
constexpr int kChunkRows = 32;  // summed in float around one pivot: an error of some 1e-7

// Of the rows that one thread has seen: their mean is pivot + mean, m2 the sum of squares around that.
template <int kCount>
struct Moments {
  float pivot[kCount] = {}, mean[kCount] = {}, m2[kCount] = {};
  float count = 0.0F;
};

template <int kCount>
struct Chunk {
  float sums[kCount] = {}, squares[kCount] = {};
};

// The mean of the first rows, so that an outlier among them is no worse a pivot than its share in the variance.
template <int kCount, class T>
__device__ void set_pivot(const T* first, std::int64_t stride, bool several, Moments<kCount>& moments) {
  float rows[kTogether][kCount];
#pragma unroll
  for (int row = 0; row < kTogether; ++row) load_lanes(first + (several ? row * stride : 0), rows[row]);
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    moments.pivot[lane] = 0.25F * ((rows[0][lane] + rows[1][lane]) + (rows[2][lane] + rows[3][lane]));
  }
}

template <int kRows, int kCount, class T>
__device__ void add_rows(const T* first, std::int64_t stride, const Moments<kCount>& moments, Chunk<kCount>& chunk) {
  Vector<T, kCount> rows[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) rows[row] = gpu::load_vector<kCount>(first + row * stride, 0);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      const float d = (gpu::load(rows[row].lanes[lane]) - moments.pivot[lane]) - moments.mean[lane];
      chunk.sums[lane] += d;
      chunk.squares[lane] = fmaf(d, d, chunk.squares[lane]);
    }
  }
}

template <int kCount>
__device__ void merge_chunk(const Chunk<kCount>& chunk, int rows, Moments<kCount>& moments) {
  const auto n = static_cast<float>(rows);
  const float inverse = 1.0F / n, weight = n / (moments.count + n), spread = moments.count * weight;
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) {
    const float shift = chunk.sums[lane] * inverse;
    const float inside = chunk.squares[lane] - chunk.sums[lane] * shift;
    moments.m2[lane] += (inside < 0.0F ? 0.0F : inside) + shift * shift * spread;  // a NaN stays one
    moments.mean[lane] += shift * weight;
  }
  moments.count += n;
}

// Sets partial [slices, 3, channels]: the slice's first row, the distance of its mean from that, its sum of squares.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads, 3) moments_kernel(const T* x, RowSlices slices, float* partial) {
  CONVOY_SHARED(float, means, [kThreads * kCount]);
  CONVOY_SHARED(float, squares, [kThreads * kCount]);
  const std::int64_t channels = slices.channels, channel = gpu::thread_channel<kCount>();
  const std::int64_t first = blockIdx.y * slices.slice_rows, rows = slices.rows_of(blockIdx.y), end = first + rows;
  const std::int64_t step = blockDim.y, stride = step * channels;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (channel < channels) {
    const T* column = x + channel;
    Moments<kCount> moments;
    std::int64_t row = first + threadIdx.y;
    if (row < end) set_pivot(column + row * channels, stride, row + (kTogether - 1) * step < end, moments);
    for (int limit = kTogether; row < end; limit = kChunkRows) {  // the first chunk is what the pivot came from
      Chunk<kCount> chunk;
      int n = 0;
      for (; n < limit && row + (kTogether - 1) * step < end; n += kTogether, row += kTogether * step) {
        add_rows<kTogether>(column + row * channels, stride, moments, chunk);
      }
      for (; n < limit && row < end; ++n, row += step) add_rows<1>(column + row * channels, stride, moments, chunk);
      merge_chunk(chunk, n, moments);
    }
    float reference[kCount];
    load_lanes(column + first * channels, reference);
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      means[thread * kCount + lane] = (moments.pivot[lane] - reference[lane]) + moments.mean[lane];
      squares[thread * kCount + lane] = moments.m2[lane];
    }
  }
  __syncthreads();
  const int tile = static_cast<int>(blockDim.x) * kCount;
  const std::int64_t mine = std::int64_t{blockIdx.x} * tile + thread;
  if (thread >= tile || mine >= channels) return;
  // Thread row t of the block has seen every step-th row from t on.
  const int height = static_cast<int>(blockDim.y), longer = static_cast<int>(rows % step);
  const auto each = static_cast<float>(rows / step);
  float weighted = 0.0F, m2 = 0.0F;
  for (int t = 0; t < height; ++t) weighted += (t < longer ? each + 1.0F : each) * means[t * tile + thread];
  const float mean = weighted / static_cast<float>(rows);
  for (int t = 0; t < height; ++t) {
    const float distance = means[t * tile + thread] - mean;
    m2 += squares[t * tile + thread] + (t < longer ? each + 1.0F : each) * distance * distance;
  }
  float* slice = partial + std::int64_t{blockIdx.y} * 3 * channels + mine;
  slice[0] = gpu::load(x[first * channels + mine]);
  slice[channels] = mean;
  slice[2 * channels] = m2;
}

__global__ void __launch_bounds__(gpu::kMergeChannels* gpu::kMergeLanes)
    merge_moments_kernel(const float* partial, RowSlices slices, int count, gpu::MomentOutputs out) {
  const std::int64_t channels = slices.channels;
  const std::int64_t channel = std::int64_t{blockIdx.x} * gpu::kMergeChannels + threadIdx.x;
  const int first = channel < channels ? static_cast<int>(threadIdx.y) : count;
  const auto rows = static_cast<double>(slices.rows);
  double weighted = 0.0, m2 = 0.0;
  for (int slice = first; slice < count; slice += gpu::kMergeLanes) {
    const float* part = partial + std::int64_t{slice} * 3 * channels + channel;
    weighted += static_cast<double>(slices.rows_of(slice)) * (static_cast<double>(part[0]) + part[channels]);
  }
  const double center = gpu::sum_over_lanes(weighted) / rows;
  for (int slice = first; slice < count; slice += gpu::kMergeLanes) {
    const float* part = partial + std::int64_t{slice} * 3 * channels + channel;
    const double distance = static_cast<double>(part[0]) + part[channels] - center;
    m2 += part[2 * channels] + static_cast<double>(slices.rows_of(slice)) * distance * distance;
  }
  m2 = gpu::sum_over_lanes(m2);
  if (channel < channels && threadIdx.y == 0) {
    gpu::set_moments(static_cast<float>(center), static_cast<float>(m2 / rows), channel, channels, out);
  }
}

enum class Residual : std::uint8_t { kNone, kPlain, kNormalized };

// y = x * scale + shift (+ residual), then ReLU, for kRows rows `stride` elements apart; y may be x or residual.
template <int kRows, Residual kResidual, bool kRelu, class T, int kCount>
__device__ void apply_rows(const T* x, const T* residual, std::int64_t at, std::int64_t stride,
                           const gpu::Affine<kCount>& map, const gpu::Affine<kCount>& residual_map, T* y) {
  Vector<T, kCount> in[kRows], other[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    in[row] = gpu::load_vector<kCount>(x + at + row * stride, 0);
    if constexpr (kResidual != Residual::kNone) other[row] = gpu::load_vector<kCount>(residual + at + row * stride, 0);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float values[kCount];
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      float value = fmaf(gpu::load(in[row].lanes[lane]), map.scale[lane], map.shift[lane]);
      if constexpr (kResidual == Residual::kPlain) value += gpu::load(other[row].lanes[lane]);
      if constexpr (kResidual == Residual::kNormalized) {
        value += fmaf(gpu::load(other[row].lanes[lane]), residual_map.scale[lane], residual_map.shift[lane]);
      }
      if constexpr (kRelu) value = gpu::positive_part(value);
      values[lane] = value;
    }
    gpu::store_lanes(values, y + at + row * stride);
  }
}

template <class T, int kCount, Residual kResidual, bool kRelu>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(const T* x, NormInputs norm, const T* residual, NormInputs residual_norm, RowSlices slices, T* y) {
  constexpr int kRows = kResidual == Residual::kNormalized ? 2 : 4;
  const std::int64_t channels = slices.channels, channel = gpu::thread_channel<kCount>();
  if (channel >= channels) return;
  gpu::Affine<kCount> map, residual_map;
  gpu::load_affine(norm, channel, map);
  if constexpr (kResidual == Residual::kNormalized) gpu::load_affine(residual_norm, channel, residual_map);
  const std::int64_t first = blockIdx.y * slices.slice_rows, end = first + slices.rows_of(blockIdx.y);
  const std::int64_t step = blockDim.y, stride = step * channels;
  std::int64_t row = first + threadIdx.y;
  for (; row + (kRows - 1) * step < end; row += kRows * step) {
    apply_rows<kRows, kResidual, kRelu>(x, residual, row * channels + channel, stride, map, residual_map, y);
  }
  for (; row < end; row += step) {
    apply_rows<1, kResidual, kRelu>(x, residual, row * channels + channel, stride, map, residual_map, y);
  }
}

// Calls f with constants: which residual there is, and whether a ReLU follows.
template <class F>
void dispatch_apply(const ops::BatchNormApply& op, const F& f) {
  const auto with = [&](auto kind) { op.relu ? f(kind, std::true_type{}) : f(kind, std::false_type{}); };
  if (op.prologue != nullptr) return with(std::integral_constant<Residual, Residual::kNormalized>{});
  if (op.residual) return with(std::integral_constant<Residual, Residual::kPlain>{});
  with(std::integral_constant<Residual, Residual::kNone>{});
}

}  // namespace

void CudaBackend::run(const ops::BatchNormStatistics& op) {
  if (op.x.size() == 0) {
    for (const Tensor* output : {&op.mean, &op.variance, &op.coefficients, &op.rounded}) {
      if (*output) zero(*output);
    }
    return;
  }
  const std::int64_t channels = op.x.shape()[1];
  Tensor partial;
  RowTiles tiles;
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    const auto launch = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 3);
      partial = tensor({tiles.grid.y, 3, channels}, DType::kF32);
      gpu::launch_kernel(*state_, tiles.grid, tiles.block, moments_kernel<T, kCount>, input, tiles.slices,
                         partial.data<float>());
    };
    gpu::dispatch_lanes<T>(channels, launch, input);
  });
  const dim3 block(gpu::kMergeChannels, gpu::kMergeLanes);
  gpu::launch_kernel(*state_, gpu::merge_grid(channels), block, merge_moments_kernel, partial.data<float>(),
                     tiles.slices, static_cast<int>(tiles.grid.y), gpu::moment_outputs(op));
}

void CudaBackend::run(const ops::BatchNormApply& op) {
  if (!fuses(op) && run_apart(op)) return;
  if (op.epilogue != nullptr) return max_pool_normalized(op);
  if (op.mask != nullptr) *op.mask = op.y;
  if (op.x.size() == 0) return;
  const NormInputs norm = gpu::norm_inputs(op);
  const NormInputs residual_norm = op.prologue != nullptr ? gpu::norm_inputs(*op.prologue) : NormInputs{};
  const Tensor& residual = op.prologue != nullptr ? op.prologue->x : op.residual;
  gpu::dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *input = op.x.data<T>(), *other = residual.data<T>();
    T* output = op.y.data<T>();
    const auto launch = [&](auto lanes) {
      constexpr int kCount = decltype(lanes)::value;
      const RowTiles tiles = gpu::row_tiles(*state_, op.x.shape(), kCount, 16);
      dispatch_apply(op, [&](auto kind, auto relu) {
        gpu::launch_kernel(*state_, tiles.grid, tiles.block,
                           apply_kernel<T, kCount, decltype(kind)::value, decltype(relu)::value>, input, norm, other,
                           residual_norm, tiles.slices, output);
      });
    };
    gpu::dispatch_lanes<T>(op.x.shape()[1], launch, input, other, output);
  });
}

}  // namespace convoy
