// SPDX-License-Identifier: Apache-2.0
//
// Which pixels the tiles of a Winograd convolution come from and go to. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/onednn/conv/winograd_transforms.h"
#include "layers/backend/operation.h"
#include "layers/base/shape.h"

namespace convoy {

/// A convolution by tiles over channels-last images, in or against its direction.
struct TileGrid {
  /// Of x [n, in, h, w] to y (backward_input: of dy to dx), in tiles of m×m.
  TileGrid(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input);
  std::int64_t side, images, in, height, width, out, out_height, out_width, padding;
  bool turned;  ///< the window is read from its end: of patches and tiles the last pixel comes first

  [[nodiscard]] std::int64_t tile_columns() const { return (out_width + side - 1) / side; }
  /// Of an image.
  [[nodiscard]] std::int64_t tiles() const { return (out_height + side - 1) / side * tile_columns(); }
  [[nodiscard]] std::int64_t all_tiles() const { return images * tiles(); }
  [[nodiscard]] std::int64_t points() const { return winograd_points(side); }
  /// Whether a weight has more points than last-level caches hold.
  [[nodiscard]] bool weight_in_memory() const;
  /// The most tiles at a time in a weight gradient: as many as have their points, of inputs and of gradients, in the
  /// second-level cache, but enough that the sums of their products are worth a pass.
  [[nodiscard]] std::int64_t gradient_tiles() const;
};

/// Points of tiles in memory: point p of the tile i, channel c, at
/// data[p * step + i * row + c / kLanes * panel + c % kLanes].
struct TilePoints {
  float* data;
  std::int64_t row, step, panel = kLanes;
};

// The tiles [first, last) are counted over all images; activations are of type Pixel: float or BFloat16.

/// Sets the points of the inputs of these tiles of `x`. zeros: [in].
template <class Pixel>
void winograd_patches(const TileGrid& grid, const Pixel* x, std::int64_t first, std::int64_t last, const Pixel* zeros,
                      const TilePoints& points);

/// Has the pixels of x brought to the second-level cache that the patch of a tile is made of.
template <class Pixel>
void prefetch_patch(const TileGrid& grid, const Pixel* x, std::int64_t tile);

/// The same of its outputs, which are overwritten.
template <class Pixel>
void prefetch_outputs(const TileGrid& grid, Pixel* y, std::int64_t tile);

/// Sets the points of the gradients of their outputs. zeros: [out].
template <class Pixel>
void winograd_gradients(const TileGrid& grid, const Pixel* dy, std::int64_t first, std::int64_t last,
                        const Pixel* zeros, const TilePoints& points);

/// Sets their outputs from their points, whose channels are neighbours (panel = kLanes), with a bias [out] or null.
/// outside: [out], for what tiles have beyond the edges.
template <class Pixel>
void winograd_tiles(const TileGrid& grid, const TilePoints& points, std::int64_t first, std::int64_t last,
                    const float* bias, Pixel* outside, Pixel* y);

}  // namespace convoy
