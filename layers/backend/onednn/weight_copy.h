// SPDX-License-Identifier: Apache-2.0
//
// The bfloat16 copies of a convolution's weight, both in one pass: oneDNN's own reorders go through the weight once for
// each, at a fifth of the memory's bandwidth. Relies on the formats that oneDNN's AVX-512 and AMX convolutions ask for;
// a weight in any other is left to oneDNN. Invariant: the copies are bit for bit those of oneDNN's reorders.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <optional>

#include "layers/backend/onednn/bfloat16.h"

namespace convoy {

/// A bfloat16 format in words of 32 bits, each a pair of neighbours along one axis (input channels in the forward copy,
/// output channels in the backward one): blocks of `pairs` rows of `columns` words, which go along the other axis.
struct PairFormat {
  std::array<std::int64_t, 4> strides{};  ///< in elements: from block to block of out and in, and of height and width
  std::int64_t pairs = 1, columns = 0;
  std::int64_t first = 0;  ///< element of the block of the first channels, row and column
};

/// A weight [O, I, H, W] as tiles of 16 input by 16 output channels.
struct WeightTiles {
  std::int64_t out_tiles = 0, in_tiles = 0, height = 0, width = 0;
  std::array<std::int64_t, 4> native{};  ///< float32: elements from tile to tile of out and in, of height and width
  std::int64_t native_row = 0;           ///< elements from an input channel of a tile to the next
  PairFormat forward, backward;
};

/// The tiles of a weight in these formats; empty when one of them is another. rotated: the backward copy has its rows
/// and columns in the opposite order.
[[nodiscard]] std::optional<WeightTiles> weight_tiles(const dnnl::memory::desc& native,
                                                      const dnnl::memory::desc& forward,
                                                      const dnnl::memory::desc& backward, bool rotated);

/// Sets both copies from the float32 weight, over all threads; leaves what pads a format alone.
void copy_weight(const WeightTiles& tiles, const float* native, BFloat16* forward, BFloat16* backward);

}  // namespace convoy
