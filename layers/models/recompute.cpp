// SPDX-License-Identifier: Apache-2.0
#include "layers/models/recompute.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace convoy {

namespace {

// Neighbours of one layer: at most `longest` a block.
void group(std::vector<Unit>& units, const std::vector<bool>& chosen, std::size_t longest) {
  int block = 0;
  std::size_t length = 0;  // of the block of neighbours that may go on
  for (std::size_t i = 0; i < units.size(); ++i) {
    const bool composite = units[i].layer->is_composite();
    if (!chosen[i] || composite || length == longest) length = 0;
    if (!chosen[i]) continue;
    if (length == 0) ++block;
    units[i].block = block;
    if (!composite) ++length;
  }
}

}  // namespace

void recompute_blocks(std::vector<Unit>& units) {
  std::vector<bool> chosen(units.size(), true);
  chosen.back() = false;
  const auto single =
      std::count_if(units.begin(), units.end() - 1, [](const Unit& unit) { return !unit.layer->is_composite(); });
  group(units, chosen, static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(single)))));
}

void recompute_chosen(std::vector<Unit>& units, const std::vector<bool>& chosen) { group(units, chosen, units.size()); }

}  // namespace convoy
