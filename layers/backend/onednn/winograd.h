// SPDX-License-Identifier: Apache-2.0
//
// 3×3 convolutions of stride 1 in float32 by Winograd's minimal filtering F(m×m, 3×3) (Lavin & Gray, 2016): a tile of
// 4×4 outputs comes from 36 products a pair of channels where the direct way takes 144, one of 2×2 from 16 instead of
// 36. The products of all tiles are matrix products, one for each point of the transforms (winograd_transforms.h).
// Private to layers/backend/onednn.
#pragma once

#include "layers/backend/backend.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/backend/onednn/winograd_transforms.h"

namespace convoy {

/// The tile's side m, 2 or 4, by which such a convolution of x is fastest, by shape alone; 0 where the direct way is:
/// for few channels, tiles half empty, or too few tiles for the weight's points, 16/9 or 4 times the weight, to be read
/// for.
[[nodiscard]] std::int64_t winograd_side(const Conv2dSpec& spec, const Shape& x, DType compute);

/// The points [(m + 2)², in, out] of a weight as both directions read them: G w Gᵀ.
[[nodiscard]] dnnl::memory::desc winograd_weights(const Conv2dSpec& spec, std::int64_t m);

/// A convolution by tiles over channels-last images, in or against its direction.
struct TileGrid {
  /// Of x [n, in, h, w] to y (backward_input: of dy to dx), in tiles of m×m.
  TileGrid(const Conv2dSpec& spec, const Shape& x, std::int64_t m, bool backward_input);
  std::int64_t side, images, in, height, width, out, out_height, out_width, padding;
  bool turned;  ///< the window is read from its end: of patches and tiles the last pixel comes first

  [[nodiscard]] std::int64_t tile_columns() const { return (out_width + side - 1) / side; }
  /// Of an image.
  [[nodiscard]] std::int64_t tiles() const { return (out_height + side - 1) / side * tile_columns(); }
  [[nodiscard]] std::int64_t points() const { return winograd_points(side); }
  /// The most images whose points stay in the second-level cache, as a divisor of all; all of them where such a group
  /// would have too few tiles for a matrix product.
  [[nodiscard]] std::int64_t group() const;
};

/// The plan of y or dx, for the images of one group. Its `weights` are winograd_weights().
BoundPrimitive bind_winograd(OnednnState& state, const TileGrid& grid);

/// Sets `to` (y or dx) from `from` (x or dy). weight: winograd_weights(); bias: [out] or null. The points of some
/// images at a time come from `backend`'s pool.
void run_winograd(OnednnState& state, Backend& backend, BoundPrimitive& bound, const TileGrid& grid, const Tensor& from,
                  void* weight, const float* bias, const Tensor& to);

/// The weight gradient: its points are sums of products over tiles.
class WinogradGradient final : public WeightGradient {
 public:
  WinogradGradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x, std::int64_t m);
  /// Biases are not for this: dbias must be null.
  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, void* dw, void* dbias) override;

 private:
  TileGrid grid_;
  BoundPrimitive first_, others_;  // the first group sets the points, the others add to them
};

}  // namespace convoy
