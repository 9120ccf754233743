// SPDX-License-Identifier: Apache-2.0
//
// What max and average pooling of the CPU backend share. Private to layers/backend/onednn.
#pragma once

#include <cstdint>

#include "layers/backend/operation.h"
#include "layers/base/host_loops.h"
#include "layers/base/shape.h"

namespace convoy {

constexpr std::int64_t kPoolChunk = 256;  // channels whose float sums are held on the stack

struct PoolGeometry {
  std::int64_t channels, height, width, out_height, out_width;
  Size2d kernel, stride, padding;
};

inline PoolGeometry pool_geometry(const PoolSpec& spec, const Shape& x, const Shape& y) {
  spec.check();
  return {x[1], x[2], x[3], y[2], y[3], spec.kernel, spec.stride, spec.padding};
}

/// The first window along an axis that covers the input at `at`.
inline std::int64_t first_window(std::int64_t at, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t beyond = at + padding - kernel + 1;
  return beyond <= 0 ? std::int64_t{0} : (beyond + stride - 1) / stride;
}

/// body(line) for lines of `elements` elements each, over the threads.
template <class Body>
void for_each_line(std::int64_t lines, std::int64_t elements, const Body& body) {
  parallel_ranges(lines, 1 + 4096 / (elements + 1), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t line = first; line < last; ++line) body(line);
  });
}

}  // namespace convoy
