// SPDX-License-Identifier: Apache-2.0
//
// Samples side by side in one picture, with a word under each. Relies on bitmap_font.h. Invariant: pixels of a sample
// are only repeated, never mixed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/images/png.h"
#include "layers/base/shape.h"

namespace convoy {

struct GridTile {
  std::vector<std::uint8_t> pixels;  ///< [H, W, C]
  std::string label;
};

/// sample: [C, H, W] of every tile, C 1 or 3. Small samples are enlarged by a whole factor; about as many columns as
/// rows. Labels longer than 16 characters lose their ends.
[[nodiscard]] Picture draw_grid(const std::vector<GridTile>& tiles, const Shape& sample);

}  // namespace convoy
