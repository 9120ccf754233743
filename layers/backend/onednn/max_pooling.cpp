// SPDX-License-Identifier: Apache-2.0
//
// Max pooling of the CPU backend. It records for every output which place of its window won; backward then
// gathers: each input pixel adds the gradients of those windows that cover it and chose it, in row-major order, so
// every pixel is written once, by one thread, whatever the windows' overlap.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/pool_geometry.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// Where up to kPoolChunk float sums or maxima are gathered: in the result itself where that is float, else in `buffer`.
inline float* gathered(float* result, float*) { return result; }
inline float* gathered(BFloat16*, float* buffer) { return buffer; }
inline void finish(const float*, std::int64_t, float*) {}
inline void finish(const float* values, std::int64_t count, BFloat16* result) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(values[i], result + i);
}

// One row of outputs. image [height, width, channels]; y, argmax [out_width, channels].
template <class T>
CONVOY_VECTORIZED void max_pool_row(const T* image, PoolGeometry g, std::int64_t out_row, T* y, std::uint8_t* argmax) {
  const std::int64_t top = out_row * g.stride.height - g.padding.height;
  const std::int64_t first_row = std::max<std::int64_t>(0, top), end_row = std::min(g.height, top + g.kernel.height);
  float buffer[kPoolChunk];
  std::int32_t places[kPoolChunk];  // as wide as the values, so that one vector mask serves both
  for (std::int64_t out = 0; out < g.out_width; ++out, y += g.channels, argmax += g.channels) {
    const std::int64_t left = out * g.stride.width - g.padding.width;
    const std::int64_t first_column = std::max<std::int64_t>(0, left),
                       end_column = std::min(g.width, left + g.kernel.width);
    for (std::int64_t c = 0; c < g.channels; c += kPoolChunk) {
      const std::int64_t count = std::min(kPoolChunk, g.channels - c);
      const auto first_place = static_cast<std::int32_t>((first_row - top) * g.kernel.width + first_column - left);
      float* best = gathered(y + c, buffer);
      CONVOY_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) {
        best[i] = -std::numeric_limits<float>::infinity();
        places[i] = first_place;
      }
      for (std::int64_t row = first_row; row < end_row; ++row) {
        for (std::int64_t column = first_column; column < end_column; ++column) {
          const T* pixel = image + (row * g.width + column) * g.channels + c;
          const auto place = static_cast<std::int32_t>((row - top) * g.kernel.width + column - left);
          CONVOY_INDEPENDENT
          for (std::int64_t i = 0; i < count; ++i) {
            const float value = load(pixel[i]), held = best[i];
            const bool take = static_cast<int>(value > held) | static_cast<int>(value != value);  // greater, or NaN
            best[i] = take ? value : held;
            places[i] = take ? place : places[i];
          }
        }
      }
      finish(best, count, y + c);
      CONVOY_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) argmax[c + i] = static_cast<std::uint8_t>(places[i]);
    }
  }
}

// dy where the window's choice is `place`, 0 elsewhere: sums [channels] is set to that, or it is added.
template <bool kAdd, class T>
inline void gather(const T* dy, const std::uint8_t* argmax, std::int32_t place, std::int64_t channels, float* sums) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const float g = load(dy[c]);
    const float chosen = argmax[c] == place ? g : 0.0F;
    sums[c] = kAdd ? sums[c] + chosen : chosen;
  }
}

// One row of input gradients. dy, argmax [out_height, out_width, channels] of the image; dx [width, channels].
template <class T>
CONVOY_VECTORIZED void max_pool_backward_row(const T* dy, const std::uint8_t* argmax, PoolGeometry g, std::int64_t row,
                                             T* dx) {
  const std::int64_t first_row = first_window(row, g.kernel.height, g.stride.height, g.padding.height);
  const std::int64_t last_row = std::min(g.out_height - 1, (row + g.padding.height) / g.stride.height);
  float buffer[kPoolChunk];
  for (std::int64_t column = 0; column < g.width; ++column, dx += g.channels) {
    const std::int64_t first_column = first_window(column, g.kernel.width, g.stride.width, g.padding.width);
    const std::int64_t last_column = std::min(g.out_width - 1, (column + g.padding.width) / g.stride.width);
    for (std::int64_t c = 0; c < g.channels; c += kPoolChunk) {
      const std::int64_t count = std::min(kPoolChunk, g.channels - c);
      float* sums = gathered(dx + c, buffer);
      bool fresh = true;
      for (std::int64_t out_row = first_row; out_row <= last_row; ++out_row) {
        for (std::int64_t out = first_column; out <= last_column; ++out) {
          const std::int64_t at = (out_row * g.out_width + out) * g.channels + c;
          const auto place =
              static_cast<std::int32_t>((row + g.padding.height - out_row * g.stride.height) * g.kernel.width + column +
                                        g.padding.width - out * g.stride.width);
          if (fresh) {
            gather<false>(dy + at, argmax + at, place, count, sums);
          } else {
            gather<true>(dy + at, argmax + at, place, count, sums);
          }
          fresh = false;
        }
      }
      if (fresh) std::fill_n(sums, count, 0.0F);  // between the windows
      finish(sums, count, dx + c);
    }
  }
}

}  // namespace

void OnednnBackend::run(const ops::MaxPoolForward& op) {
  const PoolGeometry g = pool_geometry(op.spec, op.x.shape(), op.y.shape());
  const std::int64_t in_image = op.x.shape().sample_size(), out_line = g.out_width * g.channels;
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    auto* places = op.argmax.data<std::uint8_t>();
    for_each_line(op.x.shape()[0] * g.out_height, out_line, [=](std::int64_t line) {
      max_pool_row(input + line / g.out_height * in_image, g, line % g.out_height, output + line * out_line,
                   places + line * out_line);
    });
  });
}

void OnednnBackend::run(const ops::MaxPoolBackward& op) {
  const PoolGeometry g = pool_geometry(op.spec, op.dx.shape(), op.dy.shape());
  const std::int64_t out_image = op.dy.shape().sample_size(), in_line = g.width * g.channels;
  dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    const auto* places = op.argmax.data<std::uint8_t>();
    for_each_line(op.dx.shape()[0] * g.height, in_line, [=](std::int64_t line) {
      const std::int64_t at = line / g.height * out_image;
      max_pool_backward_row(gradient + at, places + at, g, line % g.height, dinput + line * in_line);
    });
  });
}

}  // namespace convoy
