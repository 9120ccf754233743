// SPDX-License-Identifier: Apache-2.0
//
// A tile is rounded row by row into pairs of bfloat16 as 32-bit words, which both formats hold: input channels 2p and
// 2p + 1 of one output channel in the forward one, the other way round in the backward one. Invariant: every element of
// both copies is written by one thread.
#include "layers/backend/onednn/weight_copy.h"

#include <bit>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/lanes.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kTile = kLanes;
constexpr std::int64_t kPairs = kTile / 2;
static_assert(std::endian::native == std::endian::little, "the first of a pair is the lower half of its word");

using Blocks = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (size, axis), from the outermost
using Strides = std::array<std::int64_t, 4>;
constexpr int kOut = 0, kIn = 1;

Strides strides_of(const dnnl_compat::Blocking& blocking) {
  return {blocking.strides[0], blocking.strides[1], blocking.strides[2], blocking.strides[3]};
}

// The format with pairs along `paired` and words along `other`; empty when it is none.
std::optional<PairFormat> pair_format(const dnnl::memory::desc& md, int paired, int other) {
  const auto blocking = dnnl_compat::blocking_of(md);
  Blocks blocks = blocking.blocks;
  if (blocking.strides.size() != 4 || blocks.empty()) return std::nullopt;
  PairFormat format{strides_of(blocking), 1, 0, 0};
  if (blocks.front().second == paired) {
    format.pairs = blocks.front().first;
    blocks.erase(blocks.begin());
  }
  if (blocks.empty()) return std::nullopt;
  format.columns = blocks.front().first;
  const bool fits = blocks == Blocks{{format.columns, other}, {2, paired}} && format.columns % kTile == 0 &&
                    (format.pairs == 1 || format.pairs % kPairs == 0);
  return fits ? std::optional(format) : std::nullopt;
}

// Words of one tile of a copy: where they begin, and from row to row.
struct TileWords {
  std::int64_t first, row;
};

TileWords tile_words(const PairFormat& f, int paired, std::array<std::int64_t, 4> tile) {
  const int other = 1 - paired;
  const std::int64_t pair = tile[paired] * kPairs, column = tile[other] * kTile;
  const std::int64_t elements = f.first + pair / f.pairs * f.strides[paired] + column / f.columns * f.strides[other] +
                                tile[2] * f.strides[2] + tile[3] * f.strides[3];
  return {elements / 2 + pair % f.pairs * f.columns + column % f.columns,
          f.pairs == 1 ? f.strides[paired] / 2 : f.columns};
}

// Two rows of a tile one behind the other.
using RowPair = std::uint16_t __attribute__((vector_size(2 * sizeof(LaneHalves))));

template <int... lane>
CONVOY_INLINE void join(const LaneHalves& low, const LaneHalves& high, Lanes& to, std::integer_sequence<int, lane...>) {
  const RowPair pair = __builtin_shufflevector(low, high, lane...);
  std::memcpy(&to, &pair, sizeof(to));
}

// native: rows of 16 output channels for each of 16 input channels. forward: a word for each o, a row for each pair of
// i; backward: a word for each i, a row for each pair of o. Both past the caches, in whole lines.
// Element: how numbers are rounded, BFloat16 or NativeBFloat16.
template <class Element>
CONVOY_INLINE void copy_words(const float* native, std::int64_t native_row, std::uint32_t* forward,
                              std::int64_t forward_row, std::uint32_t* backward, std::int64_t backward_row) {
  LaneHalves rounded[kTile];
  for (std::int64_t i = 0; i < kTile; ++i) {
    Lanes row;
    load(native + i * native_row, row);
    Element halves[kTile];
    store(row, halves);
    std::memcpy(&rounded[i], halves, sizeof(rounded[i]));
  }
  for (std::int64_t p = 0; p < kPairs; ++p) {
    LaneWords words;
    pair_lanes(rounded[2 * p], rounded[2 * p + 1], words);
    Lanes row;
    std::memcpy(&row, &words, sizeof(row));
    stream(Element(), row, reinterpret_cast<float*>(forward + p * forward_row));
  }
  // Rows of words i and i + 8 in one vector: both halves are transposed at once.
  Lanes words[kPairs];
  for (std::int64_t i = 0; i < kPairs; ++i) {
    join(rounded[i], rounded[i + kPairs], words[i], std::make_integer_sequence<int, 2 * kTile>());
  }
  exchange_rows<1, kPairs>(words);
  exchange_rows<2, kPairs>(words);
  exchange_rows<4, kPairs>(words);
  for (std::int64_t p = 0; p < kPairs; ++p)
    stream(Element(), words[p], reinterpret_cast<float*>(backward + p * backward_row));
}

CONVOY_VECTORIZED void copy_tile(const float* native, std::int64_t native_row, std::uint32_t* forward,
                                 std::int64_t forward_row, std::uint32_t* backward, std::int64_t backward_row) {
  copy_words<BFloat16>(native, native_row, forward, forward_row, backward, backward_row);
}

CONVOY_NATIVE_BF16 void copy_tile_bf16(const float* native, std::int64_t native_row, std::uint32_t* forward,
                                       std::int64_t forward_row, std::uint32_t* backward, std::int64_t backward_row) {
  copy_words<NativeBFloat16>(native, native_row, forward, forward_row, backward, backward_row);
}

}  // namespace

std::optional<WeightTiles> weight_tiles(const dnnl::memory::desc& native, const dnnl::memory::desc& forward,
                                        const dnnl::memory::desc& backward, bool rotated) {
  const auto dims = dnnl_compat::dims_of(native);
  const auto from = dnnl_compat::blocking_of(native);
  if (dims.size() != 4 || from.strides.size() != 4 || dims[kOut] % kTile != 0 || dims[kIn] % kTile != 0) {
    return std::nullopt;
  }
  const auto to = pair_format(forward, kIn, kOut);
  auto back = pair_format(backward, kOut, kIn);
  if (!to || !back) return std::nullopt;
  if (rotated) {
    for (const std::size_t axis : {2U, 3U}) {
      back->first += (dims[axis] - 1) * back->strides[axis];
      back->strides[axis] = -back->strides[axis];
    }
  }
  WeightTiles tiles{dims[kOut] / kTile, dims[kIn] / kTile, dims[2], dims[3], strides_of(from), kTile, *to, *back};
  if (from.blocks.empty() && tiles.native[kOut] == 1) {  // output channels lie side by side
    tiles.native_row = tiles.native[kIn];
    tiles.native[kOut] *= kTile;
    tiles.native[kIn] *= kTile;
    return tiles;
  }
  return from.blocks == Blocks{{kTile, kIn}, {kTile, kOut}} ? std::optional(tiles) : std::nullopt;
}

void copy_weight(const WeightTiles& t, const float* native, BFloat16* forward, BFloat16* backward) {
  const std::int64_t window = t.height * t.width;
  const bool rows = t.native[kOut] < t.native[kIn];  // neighbours in memory are neighbours in time
  auto* forward_words = reinterpret_cast<std::uint32_t*>(forward);
  auto* backward_words = reinterpret_cast<std::uint32_t*>(backward);
  const auto copy = native_bf16() ? copy_tile_bf16 : copy_tile;
  parallel_ranges(t.out_tiles * t.in_tiles * window, 64, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t out = rows ? n % t.out_tiles : n / (t.in_tiles * window);
      const std::int64_t in = rows ? n / t.out_tiles % t.in_tiles : n / window % t.in_tiles;
      const std::int64_t place = rows ? n / (t.out_tiles * t.in_tiles) : n % window;
      const Strides tile{out, in, place / t.width, place % t.width};
      const TileWords to = tile_words(t.forward, kIn, tile), back = tile_words(t.backward, kOut, tile);
      copy(native + std::inner_product(tile.begin(), tile.end(), t.native.begin(), std::int64_t{0}), t.native_row,
           forward_words + to.first, to.row, backward_words + back.first, back.row);
    }
    end_streams();
  });
}

}  // namespace convoy
