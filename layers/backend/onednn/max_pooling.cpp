// SPDX-License-Identifier: Apache-2.0
//
// Max pooling of the CPU backend. It records for every output which place of its window won; backward then
// gathers: each input pixel adds the gradients of those windows that cover it and chose it, in row-major order, so
// every pixel is written once, by one thread, whatever the windows' overlap.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/pool_geometry.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// Calls f(VectorWidth<w>(), c) for the channels [c, c + w): as many whole vectors of `width` as there are, then
// narrower ones.
template <int width, class F>
CONVOY_INLINE void for_channels(std::int64_t channels, F f) {
  std::int64_t c = 0;
  for (; c + width <= channels; c += width) f(VectorWidth<width>(), c);
  for (; c + 4 <= channels; c += 4) f(VectorWidth<4>(), c);
  for (; c < channels; ++c) f(VectorWidth<1>(), c);
}

template <int width>
using Places = Vector<std::int32_t, width>;  // as wide as the values, so that one mask serves both

// Sets channels [c, c + width) of one output to the largest values of its window, and their places: the first of those
// that are equal, but the last NaN. top, left: where the window begins, which may be outside the image.
template <int width, class T>
CONVOY_INLINE void max_of_window(const T* image, const PoolGeometry& g, std::int64_t top, std::int64_t left,
                                 std::int64_t c, T* y, std::uint8_t* argmax) {
  const std::int64_t first_row = std::max<std::int64_t>(0, top), end_row = std::min(g.height, top + g.kernel.height);
  const std::int64_t first_column = std::max<std::int64_t>(0, left),
                     end_column = std::min(g.width, left + g.kernel.width);
  const auto place_of = [&](std::int64_t row, std::int64_t column) CONVOY_INLINE_LAMBDA {
    return static_cast<std::int32_t>((row - top) * g.kernel.width + column - left);
  };
  auto best = Vector<float, width>{} - std::numeric_limits<float>::infinity();
  auto places = Places<width>{} + place_of(first_row, first_column);
  for (std::int64_t row = first_row; row < end_row; ++row) {
    for (std::int64_t column = first_column; column < end_column; ++column) {
      Vector<float, width> value;
      load(image + (row * g.width + column) * g.channels + c, value);
      const Places<width> take = (value > best) | (value != value), here = Places<width>{} + place_of(row, column);
      best = take ? value : best;
      places = take ? here : places;
    }
  }
  store(best, y + c);
  const auto bytes = __builtin_convertvector(places, Vector<std::uint8_t, width>);
  std::memcpy(argmax + c, &bytes, sizeof(bytes));
}

// One row of outputs. image [height, width, channels]; y, argmax [out_width, channels].
template <class T>
void max_pool_row(const T* image, const PoolGeometry& g, std::int64_t out_row, T* y, std::uint8_t* argmax) {
  vectorized([=, &g](auto width) CONVOY_INLINE_LAMBDA {
    for (std::int64_t out = 0; out < g.out_width; ++out) {
      const auto set = [=, &g](auto some, std::int64_t c) CONVOY_INLINE_LAMBDA {
        max_of_window<some>(image, g, out_row * g.stride.height - g.padding.height,
                            out * g.stride.width - g.padding.width, c, y + out * g.channels, argmax + out * g.channels);
      };
      for_channels<width>(g.channels, set);
    }
  });
}

// Sets channels [c, c + width) of a pixel's gradient. dy, argmax [out_height, out_width, channels] of the image.
template <int width, class T>
CONVOY_INLINE void gather_gradient(const T* dy, const std::uint8_t* argmax, const PoolGeometry& g, std::int64_t row,
                                   std::int64_t column, std::int64_t c, T* dx) {
  const std::int64_t first_row = first_window(row, g.kernel.height, g.stride.height, g.padding.height);
  const std::int64_t last_row = std::min(g.out_height - 1, (row + g.padding.height) / g.stride.height);
  const std::int64_t first_column = first_window(column, g.kernel.width, g.stride.width, g.padding.width);
  const std::int64_t last_column = std::min(g.out_width - 1, (column + g.padding.width) / g.stride.width);
  auto sum = -Vector<float, width>{};                                  // to which -0 can be added
  if (first_row > last_row || first_column > last_column) sum = -sum;  // between the windows
  for (std::int64_t out_row = first_row; out_row <= last_row; ++out_row) {
    for (std::int64_t out = first_column; out <= last_column; ++out) {
      const std::int64_t at = (out_row * g.out_width + out) * g.channels + c;
      const auto place =
          static_cast<std::int32_t>((row + g.padding.height - out_row * g.stride.height) * g.kernel.width + column +
                                    g.padding.width - out * g.stride.width);
      Vector<float, width> gradient;
      load(dy + at, gradient);
      Vector<std::uint8_t, width> bytes;
      std::memcpy(&bytes, argmax + at, sizeof(bytes));
      const Places<width> chosen = __builtin_convertvector(bytes, Places<width>) == place;
      sum += chosen ? gradient : Vector<float, width>{};
    }
  }
  store(sum, dx + c);
}

// One row of input gradients. dx [width, channels].
template <class T>
void max_pool_backward_row(const T* dy, const std::uint8_t* argmax, const PoolGeometry& g, std::int64_t row, T* dx) {
  vectorized([=, &g](auto width) CONVOY_INLINE_LAMBDA {
    for (std::int64_t column = 0; column < g.width; ++column) {
      const auto set = [=, &g](auto some, std::int64_t c) CONVOY_INLINE_LAMBDA {
        gather_gradient<some>(dy, argmax, g, row, column, c, dx + column * g.channels);
      };
      for_channels<width>(g.channels, set);
    }
  });
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
