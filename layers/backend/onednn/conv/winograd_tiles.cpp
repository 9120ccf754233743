// SPDX-License-Identifier: Apache-2.0
//
// What lies outside an image is read from a pixel of zeros and written to one that is never read.
#include "layers/backend/onednn/conv/winograd_tiles.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace convoy {

namespace {

constexpr std::int64_t kGroupBytes = 5 << 18;  // of points at a time: 1.25 MiB, beside a weight's in 2 MiB
constexpr std::int64_t kTiles = 64;            // of those that do not fit: the sums of their products are worth a pass,
constexpr std::int64_t kTilesMemory = 128;     // and if these come from memory
constexpr std::int64_t kLastLevelBytes = 16 << 20;
constexpr std::size_t kMaxPixels = 36;  // of a patch

// The tile `index`, counted over all images: its image, and its first output pixel.
struct TilePlace {
  TilePlace(const TileGrid& g, std::int64_t index)
      : image(index / g.tiles()),
        row(index % g.tiles() / g.tile_columns() * g.side),
        column(index % g.tiles() % g.tile_columns() * g.side) {}
  std::int64_t image, row, column;
};

// Channels-last images of `height` x `width` pixels.
template <class T>
struct Images {
  T* data;
  std::int64_t height, width, channels;
  T* outside;  // what stands for the pixels beyond the edges

  // The pixels of a square from (row, column) on, from its end where `turned`.
  [[nodiscard]] std::array<T*, kMaxPixels> square(std::int64_t image, std::int64_t row, std::int64_t column,
                                                  std::int64_t side, bool turned) const {
    std::array<T*, kMaxPixels> pixels;
    T* base = data + image * height * width * channels;
    std::int64_t i = turned ? side * side - 1 : 0;
    for (std::int64_t h = row; h < row + side; ++h) {
      for (std::int64_t w = column; w < column + side; ++w, turned ? --i : ++i) {
        const bool inside = h >= 0 && h < height && w >= 0 && w < width;
        pixels[static_cast<std::size_t>(i)] = inside ? base + (h * width + w) * channels : outside;
      }
    }
    return pixels;
  }

  // Without what lies beyond the edges.
  template <Access access>
  void prefetch_square(std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t side) const {
    const std::int64_t first = std::max<std::int64_t>(column, 0), last = std::min(column + side, width);
    for (std::int64_t h = std::max<std::int64_t>(row, 0); h < std::min(row + side, height); ++h) {
      const T* from = data + ((image * height + h) * width + first) * channels;
      prefetch<access, CacheLevel::kSecond>(from, (last - first) * channels);
    }
  }
};

}  // namespace

TileGrid::TileGrid(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input)
    : side(m),
      images(x[0]),
      in(spec.in_channels),
      height(x[2]),
      width(x[3]),
      out(spec.out_channels),
      out_height(spec.output_height(height)),
      out_width(spec.output_width(width)),
      padding(spec.padding.height),
      turned(backward_input) {
  if (!backward_input) return;
  std::swap(in, out);
  std::swap(height, out_height);
  std::swap(width, out_width);
  padding = 2 - padding;
}

bool TileGrid::weight_in_memory() const { return points() * in * out * std::int64_t{sizeof(float)} > kLastLevelBytes; }

std::int64_t TileGrid::gradient_tiles() const {
  const std::int64_t tile_bytes = points() * (in + out) * std::int64_t{sizeof(float)};
  return std::max(kGroupBytes / tile_bytes, weight_in_memory() ? kTilesMemory : kTiles);
}

template <class Pixel>
void winograd_patches(const TileGrid& g, const Pixel* x, std::int64_t first, std::int64_t last, const Pixel* zeros,
                      const TilePoints& points) {
  const Images<const Pixel> images{x, g.height, g.width, g.in, zeros};
  for (std::int64_t i = first; i < last; ++i) {
    const TilePlace at(g, i);
    const auto pixels = images.square(at.image, at.row - g.padding, at.column - g.padding, g.side + 2, g.turned);
    winograd_patch(g.side, pixels.data(), g.in, points.step, points.panel, points.data + (i - first) * points.row);
  }
}

template <class Pixel>
void prefetch_patch(const TileGrid& g, const Pixel* x, std::int64_t tile) {
  const TilePlace at(g, tile);
  const Images<const Pixel> images{x, g.height, g.width, g.in, nullptr};
  images.template prefetch_square<Access::kRead>(at.image, at.row - g.padding, at.column - g.padding, g.side + 2);
}

template <class Pixel>
void prefetch_outputs(const TileGrid& g, Pixel* y, std::int64_t tile) {
  const TilePlace at(g, tile);
  const Images<Pixel> images{y, g.out_height, g.out_width, g.out, nullptr};
  images.template prefetch_square<Access::kWrite>(at.image, at.row, at.column, g.side);
}

template <class Pixel>
void winograd_gradients(const TileGrid& g, const Pixel* dy, std::int64_t first, std::int64_t last, const Pixel* zeros,
                        const TilePoints& points) {
  const Images<const Pixel> images{dy, g.out_height, g.out_width, g.out, zeros};
  for (std::int64_t i = first; i < last; ++i) {
    const TilePlace at(g, i);
    const auto pixels = images.square(at.image, at.row, at.column, g.side, false);
    winograd_gradient(g.side, pixels.data(), g.out, points.step, points.panel, points.data + (i - first) * points.row);
  }
}

template <class Pixel>
void winograd_tiles(const TileGrid& g, const TilePoints& points, std::int64_t first, std::int64_t last,
                    const float* bias, Pixel* outside, Pixel* y) {
  const Images<Pixel> images{y, g.out_height, g.out_width, g.out, outside};
  for (std::int64_t i = first; i < last; ++i) {
    const TilePlace at(g, i);
    const auto pixels = images.square(at.image, at.row, at.column, g.side, g.turned);
    winograd_tile(g.side, points.data + (i - first) * points.row, points.step, g.out, bias, pixels.data());
  }
}

template void winograd_patches(const TileGrid&, const float*, std::int64_t, std::int64_t, const float*,
                               const TilePoints&);
template void winograd_gradients(const TileGrid&, const float*, std::int64_t, std::int64_t, const float*,
                                 const TilePoints&);
template void winograd_tiles(const TileGrid&, const TilePoints&, std::int64_t, std::int64_t, const float*, float*,
                             float*);
template void prefetch_patch(const TileGrid&, const float*, std::int64_t);
template void prefetch_patch(const TileGrid&, const BFloat16*, std::int64_t);
template void prefetch_outputs(const TileGrid&, float*, std::int64_t);
template void prefetch_outputs(const TileGrid&, BFloat16*, std::int64_t);
template void winograd_patches(const TileGrid&, const BFloat16*, std::int64_t, std::int64_t, const BFloat16*,
                               const TilePoints&);
template void winograd_gradients(const TileGrid&, const BFloat16*, std::int64_t, std::int64_t, const BFloat16*,
                                 const TilePoints&);
template void winograd_tiles(const TileGrid&, const TilePoints&, std::int64_t, std::int64_t, const float*, BFloat16*,
                             BFloat16*);

}  // namespace convoy
