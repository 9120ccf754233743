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
#include "layers/backend/cuda/cuda_check.h"
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

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
std::vector<double> zeros(std::int64_t size) { return std::vector<double>(index(size)); }

// Adds the sums over rows [rows, channels] to the float32 numbers at `totals`.
void add_sums(const std::vector<double>& rows, std::int64_t channels, void* totals) {
  std::vector<double> sums = numbers(totals, channels, DType::kF32);
  for (std::size_t i = 0; i < rows.size(); ++i) sums[i % index(channels)] += rows[i];
  put(sums, totals, DType::kF32);
}

// f(value, scale, shift) for each value of rows of channels.
template <class F>
void for_each_channel(std::vector<double>& values, std::int64_t channels, const std::vector<double>& a,
                      const std::vector<double>& b, const F& f) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i % index(channels);
    values[i] = f(values[i], a[c], b[c]);
  }
}

double affine(double value, double scale, double shift) { return value * scale + shift; }

// The input as the convolution reads it: rounded to the type once more after a prologue.
std::vector<double> read_input(const ConvPlanKey& key, const ConvBuffers& buffers, std::int64_t size, DType type) {
  std::vector<double> x = numbers(buffers.x, size, key.type);
  if (!key.fusion.prologue) return x;
  const std::vector<double> scale = numbers(buffers.scale, key.in_channels, type),
                            shift = numbers(buffers.shift, key.in_channels, type);
  for_each_channel(x, key.in_channels, scale, shift,
                   [](double v, double a, double b) { return affine(v, a, b) < 0 ? 0 : affine(v, a, b); });
  std::vector<std::byte> rounded(x.size() * dtype_size(key.type));
  put(x, rounded.data(), key.type);
  return numbers(rounded.data(), size, key.type);
}

void add_statistics(const ConvPlanKey& key, const ConvBuffers& buffers, std::vector<double> y) {
  const std::vector<double> pivot = numbers(buffers.pivot, key.out_channels, DType::kF32);
  for_each_channel(y, key.out_channels, pivot, pivot, [](double v, double p, double) { return v - p; });
  add_sums(y, key.out_channels, buffers.sums);
  for (double& value : y) value *= value;
  add_sums(y, key.out_channels, buffers.squares);
}

void finish_input_gradient(const ConvPlanKey& key, const ConvBuffers& buffers, std::vector<double>& dx) {
  const auto size = static_cast<std::int64_t>(dx.size()), channels = key.in_channels;
  const auto read = [&](const void* data) { return numbers(data, size, key.type); };
  const auto per_channel = [&](const void* data) { return numbers(data, channels, DType::kF32); };
  if (key.fusion.residual) {
    const std::vector<double> residual = read(buffers.residual);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += residual[i];
  }
  std::vector<double> x, mask;
  if (key.fusion.reductions) x = read(buffers.norm_input);
  if (key.fusion.mask == ReluMask::kOutput) mask = read(buffers.mask);
  if (key.fusion.mask == ReluMask::kRecomputed) {
    mask = x;
    for_each_channel(mask, channels, per_channel(buffers.scale), per_channel(buffers.shift), affine);
  }
  for (std::size_t i = 0; i < mask.size(); ++i) dx[i] = mask[i] > 0 ? dx[i] : 0;
  if (!key.fusion.reductions) return;
  add_sums(dx, channels, buffers.dbeta);
  for_each_channel(x, channels, per_channel(buffers.mean), per_channel(buffers.inverse_std),
                   [](double v, double mean, double inverse) { return (v - mean) * inverse; });
  for (std::size_t i = 0; i < dx.size(); ++i) x[i] *= dx[i];
  add_sums(x, channels, buffers.dgamma);
}

void convolve(const ConvPlanKey& key, const ConvBuffers& buffers) {
  const std::int64_t x_size = key.batch * key.in_channels * key.height * key.width;
  const std::int64_t w_size =
      key.out_channels * key.window.kernel.height * key.window.kernel.width * key.in_channels / key.groups;
  const std::int64_t y_size = key.batch * key.out_channels * key.out_height() * key.out_width();
  const auto read = [&](const void* data, std::int64_t size) { return numbers(data, size, key.type); };
  switch (key.direction) {
    case ConvDirection::kForward: {
      const std::vector<double> x = read_input(key, buffers, x_size, DType::kF32), w = read(buffers.w, w_size);
      std::vector<double> y = zeros(y_size);
      for_each_term(key, [&](auto i, auto j, auto k) { y[index(k)] += x[index(i)] * w[index(j)]; });
      put(y, buffers.y, key.type);
      if (key.fusion.statistics) add_statistics(key, buffers, std::move(y));
      return;
    }
    case ConvDirection::kBackwardInput: {
      const std::vector<double> dy = read(buffers.y, y_size), w = read(buffers.w, w_size);
      std::vector<double> dx = zeros(x_size);
      for_each_term(key, [&](auto i, auto j, auto k) { dx[index(i)] += dy[index(k)] * w[index(j)]; });
      finish_input_gradient(key, buffers, dx);
      return put(dx, buffers.x, key.type);
    }
    case ConvDirection::kBackwardWeight: {
      const std::vector<double> dy = read(buffers.y, y_size), x = read_input(key, buffers, x_size, key.type);
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

bool ConvolutionPlans::try_run(CudaState& state, Backend& /*backend*/, const ConvPlanKey& key,
                               const ConvBuffers& buffers) {
  if (!state.capturing()) {
    plans_.try_emplace(key);
  } else if (!plans_.contains(key)) {
    fail("{} has no plan yet and cannot be recorded", key.str());
  }
  CONVOY_CUDA_CHECK(on_host::enqueue(state.stream, "convolution", [key, buffers] { convolve(key, buffers); }));
  return true;
}

void ConvolutionPlans::run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers) {
  try_run(state, backend, key, buffers);
}

}  // namespace convoy
