// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of pooling share: windows over images, and the gradient of max pooling gathered at a pixel.
#pragma once

#include <cstdint>

#include "layers/backend/cuda/channel_rows.cuh"
#include "layers/backend/operation.h"

namespace convoy::gpu {

struct PoolGeometry {
  std::int64_t channels;
  int height, width, out_height, out_width;
  int kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;
};

inline PoolGeometry geometry(const PoolSpec& spec, const Shape& x, const Shape& y) {
  spec.check();
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  return {x[1],
          narrow(x[2]),
          narrow(x[3]),
          narrow(y[2]),
          narrow(y[3]),
          narrow(spec.kernel.height),
          narrow(spec.kernel.width),
          narrow(spec.stride.height),
          narrow(spec.stride.width),
          narrow(spec.padding.height),
          narrow(spec.padding.width)};
}

// One block per line of `width` pixels, with a thread per vector where there are few.
struct LineLaunch {
  unsigned lines, threads;
  LineLaunch(std::int64_t line_count, std::int64_t width, std::int64_t channels, int lanes)
      : lines(static_cast<unsigned>(line_count)),
        threads(static_cast<unsigned>(std::min<std::int64_t>(kThreads, (width * channels / lanes + 31) / 32 * 32))) {}
};

// The first window along an axis that covers the input at `at`.
__device__ inline int first_window(int at, int kernel, int stride, int padding) {
  const int beyond = at + padding - kernel + 1;
  return beyond <= 0 ? 0 : (beyond + stride - 1) / stride;
}

/// The gradient of max pooling at an input pixel, the sum over the windows that chose it, in row-major order; dy and
/// argmax [images, out_height, out_width, channels].
template <class T, int kCount>
__device__ void gather_max_pool(const T* dy, const std::uint8_t* argmax, const PoolGeometry& g, std::int64_t image,
                                int row, int column, std::int64_t channel, float (&sums)[kCount]) {
  const int first_row = first_window(row, g.kernel_height, g.stride_height, g.padding_height);
  const int last_row = min(g.out_height - 1, (row + g.padding_height) / g.stride_height);
  const int first_column = first_window(column, g.kernel_width, g.stride_width, g.padding_width);
  const int last_column = min(g.out_width - 1, (column + g.padding_width) / g.stride_width);
#pragma unroll
  for (int lane = 0; lane < kCount; ++lane) sums[lane] = 0.0F;
  for (int out_row = first_row; out_row <= last_row; ++out_row) {
    for (int out = first_column; out <= last_column; ++out) {
      const std::int64_t at = ((image * g.out_height + out_row) * g.out_width + out) * g.channels + channel;
      const int place = (row + g.padding_height - out_row * g.stride_height) * g.kernel_width + column +
                        g.padding_width - out * g.stride_width;
      float gradients[kCount];
      load_lanes(dy + at, gradients);
      const auto chosen = load_vector<kCount>(argmax + at, 0);
#pragma unroll
      for (int lane = 0; lane < kCount; ++lane) {
        sums[lane] += chosen.lanes[lane] == place ? gradients[lane] : 0.0F;
      }
    }
  }
}

/// Where a kernel over rows (channel_rows.cuh) finds the gradient of a row: in memory, or under max pooling.
template <class T>
struct StoredGradient {
  const T* dy;
  std::int64_t channels;
  template <int kCount>
  __device__ Vector<T, kCount> load(std::int64_t row, std::int64_t channel) const {
    return load_vector<kCount>(dy + row * channels + channel, 0);
  }
};
template <class T>
struct PooledGradient {
  const T* dy;
  const std::uint8_t* argmax;
  PoolGeometry g;
  template <int kCount>
  __device__ Vector<float, kCount> load(std::int64_t row, std::int64_t channel) const {
    const auto pixel = static_cast<std::uint32_t>(row), width = static_cast<std::uint32_t>(g.width);
    const std::uint32_t line = pixel / width, image = line / static_cast<std::uint32_t>(g.height);
    Vector<float, kCount> gradient;
    gather_max_pool(dy, argmax, g, image, static_cast<int>(line - image * static_cast<std::uint32_t>(g.height)),
                    static_cast<int>(pixel - line * width), channel, gradient.lanes);
    return gradient;
  }
};

}  // namespace convoy::gpu
