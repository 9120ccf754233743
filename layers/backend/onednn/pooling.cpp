// SPDX-License-Identifier: Apache-2.0
//
// Pooling of the CPU backend. Max pooling records for every output which place of its window won; backward then
// gathers: each input pixel adds the gradients of those windows that cover it and chose it, in row-major order, so
// every pixel is written once, by one thread, whatever the windows' overlap.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kChunk = 256;  // channels whose float sums are held on the stack

struct PoolGeometry {
  std::int64_t channels, height, width, out_height, out_width;
  Size2d kernel, stride, padding;
};

PoolGeometry geometry(const PoolSpec& spec, const Shape& x, const Shape& y) {
  const auto wrong = [](std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    return kernel < 1 || kernel > 15 || stride < 1 || padding < 0 || 2 * padding > kernel;
  };
  if (wrong(spec.kernel.height, spec.stride.height, spec.padding.height) ||
      wrong(spec.kernel.width, spec.stride.width, spec.padding.width)) {
    fail_usage("pooling needs kernel 1 to 15, stride at least 1 and padding at most half the kernel, not {}, {}, {}",
               spec.kernel.str(), spec.stride.str(), spec.padding.str());
  }
  return {x[1], x[2], x[3], y[2], y[3], spec.kernel, spec.stride, spec.padding};
}

// Where up to kChunk float sums or maxima are gathered: in the result itself where that is float, else in `buffer`.
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
  float buffer[kChunk];
  std::int32_t places[kChunk];  // as wide as the values, so that one vector mask serves both
  for (std::int64_t out = 0; out < g.out_width; ++out, y += g.channels, argmax += g.channels) {
    const std::int64_t left = out * g.stride.width - g.padding.width;
    const std::int64_t first_column = std::max<std::int64_t>(0, left),
                       end_column = std::min(g.width, left + g.kernel.width);
    for (std::int64_t c = 0; c < g.channels; c += kChunk) {
      const std::int64_t count = std::min(kChunk, g.channels - c);
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

// The first window along an axis that covers the input at `at`.
inline std::int64_t first_window(std::int64_t at, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t beyond = at + padding - kernel + 1;
  return beyond <= 0 ? std::int64_t{0} : (beyond + stride - 1) / stride;
}

// One row of input gradients. dy, argmax [out_height, out_width, channels] of the image; dx [width, channels].
template <class T>
CONVOY_VECTORIZED void max_pool_backward_row(const T* dy, const std::uint8_t* argmax, PoolGeometry g, std::int64_t row,
                                             T* dx) {
  const std::int64_t first_row = first_window(row, g.kernel.height, g.stride.height, g.padding.height);
  const std::int64_t last_row = std::min(g.out_height - 1, (row + g.padding.height) / g.stride.height);
  float buffer[kChunk];
  for (std::int64_t column = 0; column < g.width; ++column, dx += g.channels) {
    const std::int64_t first_column = first_window(column, g.kernel.width, g.stride.width, g.padding.width);
    const std::int64_t last_column = std::min(g.out_width - 1, (column + g.padding.width) / g.stride.width);
    for (std::int64_t c = 0; c < g.channels; c += kChunk) {
      const std::int64_t count = std::min(kChunk, g.channels - c);
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

// One row of means. image [height, width, channels]; y [out_width, channels].
template <class T>
CONVOY_VECTORIZED void avg_pool_row(const T* image, PoolGeometry g, std::int64_t out_row, T* y) {
  const std::int64_t top = out_row * g.stride.height - g.padding.height;
  const std::int64_t first_row = std::max<std::int64_t>(0, top), end_row = std::min(g.height, top + g.kernel.height);
  const float scale = 1.0F / static_cast<float>(g.kernel.height * g.kernel.width);
  float sums[kChunk];
  for (std::int64_t out = 0; out < g.out_width; ++out, y += g.channels) {
    const std::int64_t left = out * g.stride.width - g.padding.width;
    const std::int64_t first_column = std::max<std::int64_t>(0, left),
                       end_column = std::min(g.width, left + g.kernel.width);
    for (std::int64_t c = 0; c < g.channels; c += kChunk) {
      const std::int64_t count = std::min(kChunk, g.channels - c);
      std::fill_n(sums, count, 0.0F);
      for (std::int64_t row = first_row; row < end_row; ++row) {
        for (std::int64_t column = first_column; column < end_column; ++column) {
          const T* pixel = image + (row * g.width + column) * g.channels + c;
          CONVOY_INDEPENDENT
          for (std::int64_t i = 0; i < count; ++i) sums[i] += load(pixel[i]);
        }
      }
      CONVOY_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) store(sums[i] * scale, y + c + i);
    }
  }
}

// One row of input gradients: each pixel adds those of the windows that cover it. dy [out_height, out_width, channels]
// of the image; dx [width, channels].
template <class T>
CONVOY_VECTORIZED void avg_pool_backward_row(const T* dy, PoolGeometry g, std::int64_t row, T* dx) {
  const std::int64_t first_row = first_window(row, g.kernel.height, g.stride.height, g.padding.height);
  const std::int64_t last_row = std::min(g.out_height - 1, (row + g.padding.height) / g.stride.height);
  const float scale = 1.0F / static_cast<float>(g.kernel.height * g.kernel.width);
  float sums[kChunk];
  for (std::int64_t column = 0; column < g.width; ++column, dx += g.channels) {
    const std::int64_t first_column = first_window(column, g.kernel.width, g.stride.width, g.padding.width);
    const std::int64_t last_column = std::min(g.out_width - 1, (column + g.padding.width) / g.stride.width);
    for (std::int64_t c = 0; c < g.channels; c += kChunk) {
      const std::int64_t count = std::min(kChunk, g.channels - c);
      std::fill_n(sums, count, 0.0F);
      for (std::int64_t out_row = first_row; out_row <= last_row; ++out_row) {
        for (std::int64_t out = first_column; out <= last_column; ++out) {
          const T* gradient = dy + (out_row * g.out_width + out) * g.channels + c;
          CONVOY_INDEPENDENT
          for (std::int64_t i = 0; i < count; ++i) sums[i] += load(gradient[i]);
        }
      }
      CONVOY_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) store(sums[i] * scale, dx + c + i);
    }
  }
}

// y [channels] = mean over x [height * width, channels]. Sums of rows are summed, so that rounding grows with
// height + width and not with their product.
template <class T>
CONVOY_VECTORIZED void average_image(const T* x, std::int64_t height, std::int64_t width, std::int64_t channels, T* y) {
  float total[kChunk], line[kChunk];
  const float scale = 1.0F / static_cast<float>(height * width);
  for (std::int64_t c = 0; c < channels; c += kChunk) {
    const std::int64_t count = std::min(kChunk, channels - c);
    std::fill_n(total, count, 0.0F);
    for (std::int64_t row = 0; row < height; ++row) {
      std::fill_n(line, count, 0.0F);
      for (std::int64_t column = 0; column < width; ++column) {
        const T* pixel = x + (row * width + column) * channels + c;
        CONVOY_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) line[i] += load(pixel[i]);
      }
      CONVOY_INDEPENDENT
      for (std::int64_t i = 0; i < count; ++i) total[i] += line[i];
    }
    CONVOY_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) store(total[i] * scale, y + c + i);
  }
}

template <class T>
CONVOY_VECTORIZED void spread_image(const T* dy, std::int64_t pixels, std::int64_t channels, T* dx) {
  const float scale = 1.0F / static_cast<float>(pixels);
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) store(load(dy[c]) * scale, dx + c);
  for (std::int64_t pixel = 1; pixel < pixels; ++pixel) std::copy_n(dx, channels, dx + pixel * channels);
}

// body(line) for lines of `elements` elements each, over the threads.
template <class Body>
void for_each_line(std::int64_t lines, std::int64_t elements, const Body& body) {
  parallel_ranges(lines, 1 + 4096 / (elements + 1), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t line = first; line < last; ++line) body(line);
  });
}

}  // namespace

void OnednnBackend::run(const ops::MaxPoolForward& op) {
  const PoolGeometry g = geometry(op.spec, op.x.shape(), op.y.shape());
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
  const PoolGeometry g = geometry(op.spec, op.dx.shape(), op.dy.shape());
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

void OnednnBackend::run(const ops::AvgPoolForward& op) {
  const PoolGeometry g = geometry(op.spec, op.x.shape(), op.y.shape());
  const std::int64_t in_image = op.x.shape().sample_size(), out_line = g.out_width * g.channels;
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    for_each_line(op.x.shape()[0] * g.out_height, out_line, [=](std::int64_t line) {
      avg_pool_row(input + line / g.out_height * in_image, g, line % g.out_height, output + line * out_line);
    });
  });
}

void OnednnBackend::run(const ops::AvgPoolBackward& op) {
  const PoolGeometry g = geometry(op.spec, op.dx.shape(), op.dy.shape());
  const std::int64_t out_image = op.dy.shape().sample_size(), in_line = g.width * g.channels;
  dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    for_each_line(op.dx.shape()[0] * g.height, in_line, [=](std::int64_t line) {
      avg_pool_backward_row(gradient + line / g.height * out_image, g, line % g.height, dinput + line * in_line);
    });
  });
}

void OnednnBackend::run(const ops::GlobalAvgPoolForward& op) {
  const std::int64_t channels = op.x.shape()[1], height = op.x.shape()[2], width = op.x.shape()[3];
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* input = op.x.data<T>();
    T* output = op.y.data<T>();
    parallel_ranges(
        op.x.shape()[0], 1 + 16384 / (height * width * channels + 1), [=](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t n = first; n < last; ++n) {
            average_image(input + n * height * width * channels, height, width, channels, output + n * channels);
          }
        });
  });
}

void OnednnBackend::run(const ops::GlobalAvgPoolBackward& op) {
  const std::int64_t channels = op.dx.shape()[1], pixels = op.dx.shape()[2] * op.dx.shape()[3];
  dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    T* dinput = op.dx.data<T>();
    parallel_ranges(op.dx.shape()[0], 1 + 16384 / (pixels * channels + 1),
                    [=](std::int64_t first, std::int64_t last, int) {
                      for (std::int64_t n = first; n < last; ++n) {
                        spread_image(gradient + n * channels, pixels, channels, dinput + n * pixels * channels);
                      }
                    });
  });
}

}  // namespace convoy
