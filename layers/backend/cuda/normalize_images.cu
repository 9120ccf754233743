// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of uint8 images on the GPU, with boxes that are erased and pairs that are mixed.
#include <algorithm>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/element.cuh"

namespace convoy {

namespace {

using gpu::kThreads;
using gpu::store;
using gpu::Vector;

// In torchvision's order of operations, so equal to it in bits.
__device__ float normalized(std::uint8_t x, float mean, float std) {
  return (static_cast<float>(x) / 255.0F - mean) / std;
}

constexpr int kPixels = 8;  // values that a thread normalises at once

// x and y [pixels, channels]; mean and std [channels], or [1] with a step of 0.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(const std::uint8_t* x, const float* mean, int mean_step, const float* std, int std_step,
                     int channels, std::int64_t vectors, std::int64_t count, T* y) {
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    const auto in = gpu::load_vector<kPixels>(x, i);
    Vector<T, kPixels> out;
    int channel = static_cast<int>(i * kPixels % channels);
#pragma unroll
    for (int lane = 0; lane < kPixels; ++lane) {
      store(normalized(in.lanes[lane], mean[channel * mean_step], std[channel * std_step]), &out.lanes[lane]);
      channel = channel + 1 == channels ? 0 : channel + 1;
    }
    gpu::store_vector(out, y, i);
  }
  for (std::int64_t i = vectors * kPixels + gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const int channel = static_cast<int>(i % channels);
    store(normalized(x[i], mean[channel * mean_step], std[channel * std_step]), y + i);
  }
}

constexpr int kImageChannels = 4;  // of the images that convolutions read (padded_channels())

// The same with y [pixels, 4], in vectors of whole pixels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_to_four_kernel(const std::uint8_t* x, const float* mean, int mean_step, const float* std, int std_step,
                             int channels, std::int64_t vectors, T* y) {
  constexpr int kCount = gpu::kLanes<T>, kTogether = kCount / kImageChannels;
  for (std::int64_t i = gpu::grid_thread(); i < vectors; i += gpu::grid_threads()) {
    Vector<T, kCount> out;
#pragma unroll
    for (int lane = 0; lane < kCount; ++lane) {
      const int channel = lane % kImageChannels;
      const std::int64_t pixel = i * kTogether + lane / kImageChannels;
      float value = 0.0F;
      if (channel < channels) {
        value = normalized(x[pixel * channels + channel], mean[channel * mean_step], std[channel * std_step]);
      }
      store(value, &out.lanes[lane]);
    }
    gpu::store_vector(out, y, i);
  }
}

// The same with y [pixels, wide], `count` elements, one at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_padded_kernel(const std::uint8_t* x, const float* mean, int mean_step, const float* std, int std_step,
                            int channels, int wide, std::int64_t count, T* y) {
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const std::int64_t pixel = i / wide;
    const int channel = static_cast<int>(i - pixel * wide);
    float value = 0.0F;
    if (channel < channels) {
      value = normalized(x[pixel * channels + channel], mean[channel * mean_step], std[channel * std_step]);
    }
    store(value, y + i);
  }
}

__device__ bool in_box(const std::int64_t* box, int row, int column) {
  return column >= box[0] && column < box[0] + box[2] && row >= box[1] && row < box[1] + box[3];
}

// All of NormalizeImages. x [images (+ 1 with weights), height, width, channels]; y with `wide` channels. A block sets
// a row of pixels at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    normalize_and_mix_kernel(const std::uint8_t* x, const float* mean, int mean_step, const float* std, int std_step,
                             const std::int64_t* erased, const float* weights, const std::int64_t* mixed,
                             std::int64_t rows, int height, int width, int channels, int wide, T* y) {
  const int elements = width * wide;
  for (std::int64_t at = blockIdx.x; at < rows; at += gridDim.x) {
    const std::int64_t image = at / height;
    const int row = static_cast<int>(at - image * height);
    const auto value = [&](std::int64_t of, int column, int channel) {
      if (erased != nullptr && in_box(erased + 4 * of, row, column)) return 0.0F;
      const std::int64_t pixel = (of * height + row) * width + column;
      return normalized(x[pixel * channels + channel], mean[channel * mean_step], std[channel * std_step]);
    };
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += static_cast<int>(blockDim.x)) {
      const int column = i / wide, channel = i - column * wide;
      float result = 0.0F;
      if (channel < channels) {
        result = value(image + (weights != nullptr ? 1 : 0), column, channel);
        if (weights != nullptr && in_box(mixed, row, column)) {
          result = gpu::add_product(__fmul_rn(weights[0], result), weights[1], value(image, column, channel));
        }
      }
      store(result, y + at * elements + i);
    }
  }
}

}  // namespace

void CudaBackend::run(const ops::NormalizeImages& op) {
  const std::int64_t count = op.x.size();
  if (op.y.size() == 0) return;
  const int mean_step = op.mean.size() == 1 ? 0 : 1, std_step = op.std.size() == 1 ? 0 : 1;
  const auto channels = static_cast<int>(op.x.shape()[1]), wide = static_cast<int>(op.y.shape()[1]);
  gpu::dispatch_activation(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto* source = op.x.data<std::uint8_t>();
    T* target = op.y.data<T>();
    if (op.erased || op.weights) {
      const Shape& shape = op.y.shape();
      const std::int64_t rows = shape[0] * shape[2];
      gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, rows, 1), kThreads, normalize_and_mix_kernel<T>, source,
                         op.mean.data<float>(), mean_step, op.std.data<float>(), std_step,
                         op.erased.data<const std::int64_t>(), op.weights.data<const float>(),
                         op.mixed.data<const std::int64_t>(), rows, static_cast<int>(shape[2]),
                         static_cast<int>(shape[3]), channels, wide, target);
      return;
    }
    if (wide != channels) {
      const std::int64_t size = op.y.size(), whole = gpu::whole_vectors(size, target);
      if (wide == kImageChannels && whole * gpu::kLanes<T> == size) {
        gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, whole), kThreads, normalize_to_four_kernel<T>, source,
                           op.mean.data<float>(), mean_step, op.std.data<float>(), std_step, channels, whole, target);
      } else {
        gpu::launch_kernel(*state_, gpu::grid_blocks(*state_, size), kThreads, normalize_padded_kernel<T>, source,
                           op.mean.data<float>(), mean_step, op.std.data<float>(), std_step, channels, wide, size,
                           target);
      }
      return;
    }
    const bool aligned = gpu::is_aligned(source, kPixels) && gpu::is_aligned(target, 16);
    const std::int64_t vectors = aligned ? count / kPixels : 0;
    const unsigned blocks = gpu::grid_blocks(*state_, std::max(vectors, count - kPixels * vectors));
    gpu::launch_kernel(*state_, blocks, kThreads, normalize_kernel<T>, source, op.mean.data<float>(), mean_step,
                       op.std.data<float>(), std_step, channels, vectors, count, target);
  });
}

}  // namespace convoy
