// SPDX-License-Identifier: Apache-2.0
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

}  // namespace convoy
