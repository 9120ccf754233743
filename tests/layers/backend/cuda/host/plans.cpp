// SPDX-License-Identifier: Apache-2.0
//
// In place of cuDNN's convolutions: the sums as they are written down, in float64. So the operations around them run as
// on a GPU, which pad channels, add biases and accumulate gradients.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elements.h"
#include "layers/backend/cuda/conv/conv_plans.h"
#include "tests/layers/backend/cuda/host/streams.h"

namespace convoy {

namespace {

// Calls f(x, w, y) with the indices of the three factors of each term, channels last; the last three are contiguous in
// `channel` steps of x and w.
template <class F>
void for_each_term(const ConvPlanKey& key, const F& f) {
  const std::int64_t in = key.in_channels / key.groups, out = key.out_channels / key.groups;
  const Size2d &kernel = key.window.kernel, &stride = key.window.stride, &padding = key.window.padding;
  for (std::int64_t pixel = 0; pixel < key.batch * key.out_height() * key.out_width(); ++pixel) {
    const std::int64_t image = pixel / (key.out_height() * key.out_width());
    const std::int64_t top = pixel / key.out_width() % key.out_height() * stride.height - padding.height;
    const std::int64_t left = pixel % key.out_width() * stride.width - padding.width;
    for (std::int64_t tap = 0; tap < kernel.height * kernel.width; ++tap) {
      const std::int64_t row = top + tap / kernel.width, column = left + tap % kernel.width;
      if (row < 0 || row >= key.height || column < 0 || column >= key.width) continue;
      const std::int64_t x = ((image * key.height + row) * key.width + column) * key.in_channels;
      for (std::int64_t o = 0; o < key.out_channels; ++o) {
        const std::int64_t w = (o * kernel.height * kernel.width + tap) * in, y = pixel * key.out_channels + o;
        for (std::int64_t i = 0; i < in; ++i) f(x + o / out * in + i, w + i, y);
      }
    }
  }
}

void convolve(const ConvPlanKey& key, const ConvBuffers& buffers) {
  const std::int64_t x_size = key.batch * key.in_channels * key.height * key.width;
  const std::int64_t w_size =
      key.out_channels * key.window.kernel.height * key.window.kernel.width * key.in_channels / key.groups;
  const std::int64_t y_size = key.batch * key.out_channels * key.out_height() * key.out_width();
  const auto read = [&](const void* data, std::int64_t size) { return numbers(data, size, key.type); };
  const auto zeros = [](std::int64_t size) { return std::vector<double>(static_cast<std::size_t>(size)); };
  const auto index = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  switch (key.direction) {
    case ConvDirection::kForward: {
      const std::vector<double> x = read(buffers.x, x_size), w = read(buffers.w, w_size);
      std::vector<double> y = zeros(y_size);
      for_each_term(key, [&](auto i, auto j, auto k) { y[index(k)] += x[index(i)] * w[index(j)]; });
      return put(y, buffers.y, key.type);
    }
    case ConvDirection::kBackwardInput: {
      const std::vector<double> dy = read(buffers.y, y_size), w = read(buffers.w, w_size);
      std::vector<double> dx = zeros(x_size);
      for_each_term(key, [&](auto i, auto j, auto k) { dx[index(i)] += dy[index(k)] * w[index(j)]; });
      return put(dx, buffers.x, key.type);
    }
    case ConvDirection::kBackwardWeight: {
      const std::vector<double> dy = read(buffers.y, y_size), x = read(buffers.x, x_size);
      std::vector<double> dw = zeros(w_size);
      for_each_term(key, [&](auto i, auto j, auto k) { dw[index(j)] += dy[index(k)] * x[index(i)]; });
      return put(dw, buffers.w, key.type);
    }
  }
}

}  // namespace

struct ConvolutionPlans::Plan {};
ConvolutionPlans::ConvolutionPlans(std::string file) : file_(std::move(file)) {}
ConvolutionPlans::~ConvolutionPlans() = default;

void ConvolutionPlans::run(CudaState& state, Backend& /*backend*/, const ConvPlanKey& key, const ConvBuffers& buffers) {
  on_host::enqueue(state.stream, [key, buffers] { convolve(key, buffers); });
}

}  // namespace convoy
