// SPDX-License-Identifier: Apache-2.0
//
// Each transform applies its matrix to the columns of a small square and then to its rows; a square's elements are
// vectors of neighbouring channels, which the compiler keeps in registers as far as they go.
#include "layers/backend/onednn/conv/winograd_transforms.h"

#include <algorithm>
#include <type_traits>

#include "layers/backend/onednn/conv/panel_product.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kRowsAhead = 4;  // of a weight's rows that are read, memory brings these

// One axis of each transform; elements are `step` apart.
template <int m>
struct Axis;

template <>
struct Axis<2> {
  // Bᵀ = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]
  template <class Floats>
  static CONVOY_INLINE void patch(Floats* d, int step) {
    const Floats d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
    d[0] = d0 - d2;
    d[step] = d1 + d2;
    d[2 * step] = d2 - d1;
    d[3 * step] = d1 - d3;
  }
  // A = [1 0; 1 1; 1 -1; 0 -1]
  template <class Floats>
  static CONVOY_INLINE void gradient(const Floats* g, Floats* u, int step) {
    u[0] = g[0];
    u[step] = g[0] + g[step];
    u[2 * step] = g[0] - g[step];
    u[3 * step] = -g[step];
  }
  // Aᵀ
  template <class Floats>
  static CONVOY_INLINE void tile(const Floats* u, Floats* y, int step) {
    y[0] = u[0] + (u[step] + u[2 * step]);
    y[step] = u[step] - u[2 * step] - u[3 * step];
  }
  // G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]
  template <class Floats>
  static CONVOY_INLINE void weight(const Floats* w, Floats* u, int step) {
    const Floats ends = 0.5F * (w[0] + w[2 * step]), middle = 0.5F * w[step];
    u[0] = w[0];
    u[step] = ends + middle;
    u[2 * step] = ends - middle;
    u[3 * step] = w[2 * step];
  }
  // Gᵀ
  template <class Floats>
  static CONVOY_INLINE void taps(const Floats* u, Floats* w, int step) {
    const Floats ends = 0.5F * (u[step] + u[2 * step]);
    w[0] = u[0] + ends;
    w[step] = 0.5F * (u[step] - u[2 * step]);
    w[2 * step] = ends + u[3 * step];
  }
};

template <>
struct Axis<4> {
  // Bᵀ = [4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1]
  template <class Floats>
  static CONVOY_INLINE void patch(Floats* d, int step) {
    const Floats d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    const Floats even = d4 - 4.0F * d2, odd = d3 - 4.0F * d1;
    const Floats even2 = d4 - d2, odd2 = 2.0F * (d3 - d1);
    d[0] = 4.0F * d0 - 5.0F * d2 + d4;
    d[step] = even + odd;
    d[2 * step] = even - odd;
    d[3 * step] = even2 + odd2;
    d[4 * step] = even2 - odd2;
    d[5 * step] = 4.0F * d1 - 5.0F * d3 + d5;
  }
  // A = [1 0 0 0; 1 1 1 1; 1 -1 1 -1; 1 2 4 8; 1 -2 4 -8; 0 0 0 1]
  template <class Floats>
  static CONVOY_INLINE void gradient(const Floats* g, Floats* u, int step) {
    const Floats even = g[0] + g[2 * step], odd = g[step] + g[3 * step];
    const Floats even2 = g[0] + 4.0F * g[2 * step], odd2 = 2.0F * g[step] + 8.0F * g[3 * step];
    u[0] = g[0];
    u[step] = even + odd;
    u[2 * step] = even - odd;
    u[3 * step] = even2 + odd2;
    u[4 * step] = even2 - odd2;
    u[5 * step] = g[3 * step];
  }
  // Aᵀ
  template <class Floats>
  static CONVOY_INLINE void tile(const Floats* u, Floats* y, int step) {
    const Floats sum = u[step] + u[2 * step], difference = u[step] - u[2 * step];
    const Floats sum2 = u[3 * step] + u[4 * step], difference2 = u[3 * step] - u[4 * step];
    y[0] = u[0] + sum + sum2;
    y[step] = difference + 2.0F * difference2;
    y[2 * step] = sum + 4.0F * sum2;
    y[3 * step] = difference + 8.0F * difference2 + u[5 * step];
  }
  // G = [1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1]
  template <class Floats>
  static CONVOY_INLINE void weight(const Floats* w, Floats* u, int step) {
    const Floats ends = (-1.0F / 6) * (w[0] + w[2 * step]), middle = (1.0F / 6) * w[step];
    const Floats ends2 = (1.0F / 24) * w[0] + (1.0F / 6) * w[2 * step], middle2 = (1.0F / 12) * w[step];
    u[0] = 0.25F * w[0];
    u[step] = ends - middle;
    u[2 * step] = ends + middle;
    u[3 * step] = ends2 + middle2;
    u[4 * step] = ends2 - middle2;
    u[5 * step] = w[2 * step];
  }
  // Gᵀ
  template <class Floats>
  static CONVOY_INLINE void taps(const Floats* u, Floats* w, int step) {
    const Floats sum = (1.0F / 6) * (u[step] + u[2 * step]), difference = (1.0F / 6) * (u[2 * step] - u[step]);
    const Floats sum2 = u[3 * step] + u[4 * step], difference2 = u[3 * step] - u[4 * step];
    w[0] = 0.25F * u[0] - sum + (1.0F / 24) * sum2;
    w[step] = difference + (1.0F / 12) * difference2;
    w[2 * step] = (1.0F / 6) * sum2 - sum + u[5 * step];
  }
};

// Floats: the vectors; Element: how a Pixel is converted, itself or NativeBFloat16.
template <int m, class Floats, class Element, class Pixel>
CONVOY_INLINE void patch_rows(const Pixel* const* pixels, std::int64_t channels, std::int64_t step, std::int64_t panel,
                              float* points) {
  constexpr int n = m + 2;
  for (std::int64_t c = 0; c < channels; c += kWidth<Floats>) {
    Floats d[n * n];
    for (int i = 0; i < n * n; ++i) load(static_cast<const Element*>(pixels[i]) + c, d[i]);
    for (int j = 0; j < n; ++j) Axis<m>::patch(d + j, n);
    for (int i = 0; i < n; ++i) Axis<m>::patch(d + n * i, 1);
    float* to = points + c / kLanes * panel + c % kLanes;
    for (int p = 0; p < n * n; ++p) store(d[p], to + p * step);
  }
}

template <int m, class Floats, class Element, class Pixel>
CONVOY_INLINE void gradient_rows(const Pixel* const* pixels, std::int64_t channels, std::int64_t step,
                                 std::int64_t panel, float* points) {
  constexpr int n = m + 2;
  for (std::int64_t c = 0; c < channels; c += kWidth<Floats>) {
    Floats g[m * m], half[n * m], u[n * n];
    for (int i = 0; i < m * m; ++i) load(static_cast<const Element*>(pixels[i]) + c, g[i]);
    for (int j = 0; j < m; ++j) Axis<m>::gradient(g + j, half + j, m);
    for (int i = 0; i < n; ++i) Axis<m>::gradient(half + m * i, u + n * i, 1);
    float* to = points + c / kLanes * panel + c % kLanes;
    for (int p = 0; p < n * n; ++p) store(u[p], to + p * step);
  }
}

template <int m, class Floats, class Element, class Pixel>
CONVOY_INLINE void tile_rows(const float* points, std::int64_t step, std::int64_t channels, const float* bias,
                             Pixel* const* pixels) {
  constexpr int n = m + 2;
  for (std::int64_t c = 0; c < channels; c += kWidth<Floats>) {
    Floats u[n * n], half[m * n], y[m * m], shift{};
    if (bias != nullptr) load(bias + c, shift);
    for (int p = 0; p < n * n; ++p) load(points + p * step + c, u[p]);
    for (int j = 0; j < n; ++j) Axis<m>::tile(u + j, half + j, n);
    for (int i = 0; i < m; ++i) Axis<m>::tile(half + n * i, y + m * i, 1);
    for (int i = 0; i < m * m; ++i) {
      const Floats value = y[i] + shift;
      store(value, static_cast<Element*>(pixels[i]) + c);
    }
  }
}

// The points of a vector of weights, whose taps are `step` apart.
template <int m, class Floats>
CONVOY_INLINE void weight_points(const float* weights, std::int64_t step, Floats* u) {
  constexpr int n = m + 2;
  Floats w[9], half[n * 3];
  for (int tap = 0; tap < 9; ++tap) load(weights + tap * step, w[tap]);
  for (int j = 0; j < 3; ++j) Axis<m>::weight(w + j, half + j, 3);
  for (int i = 0; i < n; ++i) Axis<m>::weight(half + 3 * i, u + n * i, 1);
}

// The points of kLanes weights, a whole cache line in each plane: of parts of lines the CPU keeps only some at a time.
template <int m, class Floats, class Element>
CONVOY_INLINE void stream_points(const float* weights, std::int64_t tap_step, float* points, std::int64_t point_step) {
  constexpr int n = m + 2, width = kWidth<Floats>, parts = kLanes / width;
  Floats u[parts][n * n];
  for (int part = 0; part < parts; ++part) weight_points<m>(weights + part * width, tap_step, u[part]);
  for (int p = 0; p < n * n; ++p) {
    for (int part = 0; part < parts; ++part) stream(Element(), u[part][p], points + p * point_step + part * width);
  }
}

// Of the weights of rows of panels, [first, last) of those of all panels. The planes are written in their order.
// Element: BFloat16, or NativeBFloat16 for what stream() makes of it.
template <int m, class Floats, class Element>
CONVOY_INLINE void weight_rows(const float* weights, std::int64_t first, std::int64_t last, std::int64_t in,
                               std::int64_t out, std::int64_t panel, float* points) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t i = row % in, begin = row / in * panel, end = std::min(begin + panel, out);
    for (std::int64_t o = begin; o < end; o += kLanes) {
      const std::int64_t ahead = std::min(i + kRowsAhead, in - 1);
      for (int tap = 0; tap < 9; ++tap) __builtin_prefetch(weights + (tap * in + ahead) * out + o);
      stream_points<m, Floats, Element>(weights + i * out + o, in * out, points + panel_offset(in, out, panel, i, o),
                                        winograd_step(in * out));
    }
  }
}

// Of blocks of kLanes input channels, whose taps are transposed first.
template <int m, class Floats, class Element>
CONVOY_INLINE void transposed_weight_rows(const float* weights, std::int64_t first, std::int64_t last, std::int64_t in,
                                          std::int64_t out, std::int64_t panel, float* points) {
  for (std::int64_t i = first * kLanes; i < last * kLanes; i += kLanes) {
    for (std::int64_t o = 0; o < out; o += kLanes) {
      float taps[9 * kLanes * kLanes];
      for (int tap = 0; tap < 9; ++tap) {
        transpose<Floats>(weights + (tap * in + i) * out + o, out, taps + tap * kLanes * kLanes);
      }
      for (std::int64_t j = 0; j < kLanes; ++j) {
        stream_points<m, Floats, Element>(taps + j * kLanes, kLanes * kLanes,
                                          points + panel_offset(out, in, panel, o + j, i), winograd_step(in * out));
      }
    }
  }
}

template <int m, class Floats>
CONVOY_INLINE void weight_gradient_rows(const float* points, std::int64_t first, std::int64_t last, std::int64_t count,
                                        float* gradient) {
  constexpr int n = m + 2;
  for (std::int64_t c = first; c < last; c += kWidth<Floats>) {
    Floats u[n * n], half[3 * n], w[9];
    for (int p = 0; p < n * n; ++p) load(points + p * winograd_step(count) + c, u[p]);
    for (int j = 0; j < n; ++j) Axis<m>::taps(u + j, half + j, n);
    for (int i = 0; i < 3; ++i) Axis<m>::taps(half + n * i, w + 3 * i, 1);
    for (int tap = 0; tap < 9; ++tap) store(w[tap], gradient + tap * count + c);
  }
}

// Calls f with the side of the tiles as a constant.
template <class F>
void dispatch_side(std::int64_t m, const F& f) {
  m == 2 ? f(std::integral_constant<int, 2>()) : f(std::integral_constant<int, 4>());
}

}  // namespace

template <class Pixel>
void winograd_patch(std::int64_t m, const Pixel* const* pixels, std::int64_t channels, std::int64_t step,
                    std::int64_t panel, float* points) {
  dispatch_side(m, [=](auto side) {
    vectorized_pixels<Pixel>([=](auto width, auto element) CONVOY_INLINE_LAMBDA {
      patch_rows<side, Vector<float, width>, decltype(element)>(pixels, channels, step, panel, points);
    });
  });
}

template <class Pixel>
void winograd_gradient(std::int64_t m, const Pixel* const* pixels, std::int64_t channels, std::int64_t step,
                       std::int64_t panel, float* points) {
  dispatch_side(m, [=](auto side) {
    vectorized_pixels<Pixel>([=](auto width, auto element) CONVOY_INLINE_LAMBDA {
      gradient_rows<side, Vector<float, width>, decltype(element)>(pixels, channels, step, panel, points);
    });
  });
}

template <class Pixel>
void winograd_tile(std::int64_t m, const float* points, std::int64_t step, std::int64_t channels, const float* bias,
                   Pixel* const* pixels) {
  dispatch_side(m, [=](auto side) {
    vectorized_pixels<Pixel>([=](auto width, auto element) CONVOY_INLINE_LAMBDA {
      tile_rows<side, Vector<float, width>, decltype(element)>(points, step, channels, bias, pixels);
    });
  });
}

template void winograd_patch(std::int64_t, const float* const*, std::int64_t, std::int64_t, std::int64_t, float*);
template void winograd_patch(std::int64_t, const BFloat16* const*, std::int64_t, std::int64_t, std::int64_t, float*);
template void winograd_gradient(std::int64_t, const float* const*, std::int64_t, std::int64_t, std::int64_t, float*);
template void winograd_gradient(std::int64_t, const BFloat16* const*, std::int64_t, std::int64_t, std::int64_t, float*);
template void winograd_tile(std::int64_t, const float*, std::int64_t, std::int64_t, const float*, float* const*);
template void winograd_tile(std::int64_t, const float*, std::int64_t, std::int64_t, const float*, BFloat16* const*);

void winograd_weight(std::int64_t m, const float* weights, std::int64_t in, std::int64_t out, float* points) {
  const std::int64_t panel = panel_columns(), panels = (out + panel - 1) / panel;
  parallel_ranges(in * panels, 16, [=](std::int64_t first, std::int64_t last, int) {
    dispatch_side(m, [=](auto side) {
      vectorized_pixels<BFloat16>([=](auto width, auto element) CONVOY_INLINE_LAMBDA {
        weight_rows<side, Vector<float, width>, decltype(element)>(weights, first, last, in, out, panel, points);
      });
    });
    end_streams();
  });
}

void winograd_weight_transposed(std::int64_t m, const float* weights, std::int64_t in, std::int64_t out,
                                float* points) {
  const std::int64_t panel = panel_columns();
  parallel_ranges(in / kLanes, 1, [=](std::int64_t first, std::int64_t last, int) {
    dispatch_side(m, [=](auto side) {
      vectorized_pixels<BFloat16>([=](auto width, auto element) CONVOY_INLINE_LAMBDA {
        transposed_weight_rows<side, Vector<float, width>, decltype(element)>(weights, first, last, in, out, panel,
                                                                              points);
      });
    });
    end_streams();
  });
}

void winograd_weight_gradient(std::int64_t m, const float* points, std::int64_t count, float* gradient) {
  parallel_ranges(count / kLanes, 64, [=](std::int64_t first, std::int64_t last, int) {
    dispatch_side(m, [=](auto side) {
      vectorized([=](auto width) CONVOY_INLINE_LAMBDA {
        weight_gradient_rows<side, Vector<float, width>>(points, first * kLanes, last * kLanes, count, gradient);
      });
    });
  });
}

}  // namespace convoy
