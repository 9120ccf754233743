// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "layers/cache.h"

namespace convoy {

std::size_t Cache::bytes() const {
  std::set<const void*> seen;
  std::size_t sum = 0;
  for (const Entry& entry : entries_) {
    for (const Tensor& tensor : entry) {
      if (tensor && seen.insert(tensor.raw()).second) sum += tensor.bytes();
    }
  }
  return sum;
}

void Cache::release_activations(int first, int end) {
  for (int layer = first; layer < end; ++layer) {
    Entry& entry = (*this)[layer];
    std::fill(entry.begin(), entry.begin() + kStatistics, Tensor());
    pending(layer).reset();
  }
}

}  // namespace convoy
