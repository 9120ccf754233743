// SPDX-License-Identifier: Apache-2.0
//
// A tile is rounded row by row into pairs of bfloat16 as 32-bit words, which both formats hold: input channels 2p and
// 2p + 1 of one output channel in the forward one, the other way round in the backward one. Relies on 512-bit vectors
// being found by the compiler. Invariant: every element of both copies is written by one thread.
#include "layers/backend/onednn/weight_copy.h"

#include <bit>
#include <vector>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/parallel.h"

namespace convoy {

namespace {

constexpr std::int64_t kTile = 16;
constexpr std::int64_t kPairs = kTile / 2;
static_assert(std::endian::native == std::endian::little, "the first of a pair is the lower half of its word");

using Blocks = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (size, axis), from the outermost

bool is_tiled(const dnnl_compat::Blocking& blocking, const Blocks& blocks) {
  return blocking.strides.size() == 4 && blocking.blocks == blocks;
}

WeightTiles::Strides strides_of(const dnnl_compat::Blocking& blocking) {
  return {blocking.strides[0], blocking.strides[1], blocking.strides[2], blocking.strides[3]};
}

inline std::uint32_t pair(float first, float second) {
  return rounded_to_bfloat16(first) | rounded_to_bfloat16(second) << 16;
}

// native: [16 i][16 o]. forward: a word for each o in every row of `row_words` words, one row for each pair of i;
// backward: words [8 pairs of o][16 i].
CONVOY_VECTORIZED void copy_tile(const float* native, std::uint32_t* forward, std::int64_t row_words,
                                 std::uint32_t* backward) {
  for (std::int64_t p = 0; p < kPairs; ++p) {
    const float* even = native + 2 * p * kTile;
    CONVOY_INDEPENDENT
    for (std::int64_t o = 0; o < kTile; ++o) forward[p * row_words + o] = pair(even[o], even[kTile + o]);
  }
  std::uint16_t rounded[kTile * kTile];
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < kTile * kTile; ++i)
    rounded[i] = static_cast<std::uint16_t>(rounded_to_bfloat16(native[i]));
  for (std::int64_t i = 0; i < kTile; ++i) {
    for (std::int64_t p = 0; p < kPairs; ++p) {
      backward[p * kTile + i] = rounded[i * kTile + 2 * p] | std::uint32_t{rounded[i * kTile + 2 * p + 1]} << 16;
    }
  }
}

}  // namespace

std::optional<WeightTiles> weight_tiles(const dnnl::memory::desc& native, const dnnl::memory::desc& forward,
                                        const dnnl::memory::desc& backward) {
  const auto dims = native.dims();
  const auto from = dnnl_compat::blocking_of(native), to = dnnl_compat::blocking_of(forward),
             back = dnnl_compat::blocking_of(backward);
  if (dims.size() != 4 || dims[0] % kTile != 0 || dims[1] % kTile != 0) return std::nullopt;
  if (!is_tiled(from, {{kTile, 1}, {kTile, 0}}) || !is_tiled(back, {{kPairs, 0}, {kTile, 1}, {2, 0}})) {
    return std::nullopt;
  }
  if (to.blocks.size() != 2 || to.blocks[0].first % kTile != 0 || !is_tiled(to, {{to.blocks[0].first, 0}, {2, 1}})) {
    return std::nullopt;
  }
  return WeightTiles{dims[0] / kTile, dims[1] / kTile,    dims[2],         dims[3], strides_of(from),
                     strides_of(to),  to.blocks[0].first, strides_of(back)};
}

void copy_weight(const WeightTiles& t, const float* native, BFloat16* forward, BFloat16* backward) {
  const std::int64_t window = t.height * t.width;
  const std::int64_t tiles_in_block = t.forward_block / kTile;
  auto* forward_words = reinterpret_cast<std::uint32_t*>(forward);
  auto* backward_words = reinterpret_cast<std::uint32_t*>(backward);
  parallel_ranges(t.out_tiles * t.in_tiles * window, 64, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t tile = first; tile < last; ++tile) {
      const std::int64_t o = tile / (t.in_tiles * window), i = tile / window % t.in_tiles;
      const std::int64_t h = tile % window / t.width, w = tile % t.width;
      const auto at = [=](const WeightTiles::Strides& strides, std::int64_t out, std::int64_t in) {
        return out * strides[0] + in * strides[1] + h * strides[2] + w * strides[3];
      };
      copy_tile(native + at(t.native, o, i),
                forward_words + (at(t.forward, o / tiles_in_block, i * kPairs) / 2 + o % tiles_in_block * kTile),
                t.forward[1] / 2, backward_words + at(t.backward, o, i) / 2);
    }
  });
}

}  // namespace convoy
