// SPDX-License-Identifier: Apache-2.0
//
// The bfloat16 copies of a convolution's weight, both in one pass: oneDNN's own reorders go through the weight once for
// each, at a fifth of the memory's bandwidth. Relies on the blocked formats that oneDNN's AVX-512 convolutions ask for;
// a weight in any other is left to oneDNN. Invariant: the copies are bit for bit those of oneDNN's reorders.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <optional>

#include "layers/backend/onednn/bfloat16.h"

namespace convoy {

/// Where the tiles of 16 input by 16 output channels of a weight [O, I, H, W] lie, in elements. Strides are those of
/// blocks of output channels, blocks of input channels, rows and columns.
struct WeightTiles {
  using Strides = std::array<std::int64_t, 4>;
  std::int64_t out_tiles = 0, in_tiles = 0, height = 0, width = 0;
  Strides native{};   ///< float32 tiles [i][o]
  Strides forward{};  ///< [i / 2][o in a block of forward_block][i % 2]; the first stride is that of such blocks
  std::int64_t forward_block = 0;
  Strides backward{};  ///< tiles [o / 2][i][o % 2]
};

/// The tiles of a weight in these formats; empty when one of them is another.
[[nodiscard]] std::optional<WeightTiles> weight_tiles(const dnnl::memory::desc& native,
                                                      const dnnl::memory::desc& forward,
                                                      const dnnl::memory::desc& backward);

/// Sets both copies from the float32 weight, over all threads; leaves what pads a format alone.
void copy_weight(const WeightTiles& tiles, const float* native, BFloat16* forward, BFloat16* backward);

}  // namespace convoy
