// SPDX-License-Identifier: Apache-2.0
//
// Average pooling of the CPU backend.
#include <algorithm>
#include <cstdint>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/pool_geometry.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

// One row of means. image [height, width, channels]; y [out_width, channels].
template <class T>
CONVOY_VECTORIZED void avg_pool_row(const T* image, PoolGeometry g, std::int64_t out_row, T* y) {
  const std::int64_t top = out_row * g.stride.height - g.padding.height;
  const std::int64_t first_row = std::max<std::int64_t>(0, top), end_row = std::min(g.height, top + g.kernel.height);
  const float scale = 1.0F / static_cast<float>(g.kernel.height * g.kernel.width);
  float sums[kPoolChunk];
  for (std::int64_t out = 0; out < g.out_width; ++out, y += g.channels) {
    const std::int64_t left = out * g.stride.width - g.padding.width;
    const std::int64_t first_column = std::max<std::int64_t>(0, left),
                       end_column = std::min(g.width, left + g.kernel.width);
    for (std::int64_t c = 0; c < g.channels; c += kPoolChunk) {
      const std::int64_t count = std::min(kPoolChunk, g.channels - c);
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
  float sums[kPoolChunk];
  for (std::int64_t column = 0; column < g.width; ++column, dx += g.channels) {
    const std::int64_t first_column = first_window(column, g.kernel.width, g.stride.width, g.padding.width);
    const std::int64_t last_column = std::min(g.out_width - 1, (column + g.padding.width) / g.stride.width);
    for (std::int64_t c = 0; c < g.channels; c += kPoolChunk) {
      const std::int64_t count = std::min(kPoolChunk, g.channels - c);
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
  float total[kPoolChunk], line[kPoolChunk];
  const float scale = 1.0F / static_cast<float>(height * width);
  for (std::int64_t c = 0; c < channels; c += kPoolChunk) {
    const std::int64_t count = std::min(kPoolChunk, channels - c);
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

}  // namespace

void OnednnBackend::run(const ops::AvgPoolForward& op) {
  const PoolGeometry g = pool_geometry(op.spec, op.x.shape(), op.y.shape());
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
  const PoolGeometry g = pool_geometry(op.spec, op.dx.shape(), op.dy.shape());
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
