// SPDX-License-Identifier: Apache-2.0
//
// Dropout of the CPU backend.
#include <cstdint>

#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

// Elements [first, last); word `word` decides on element 0.
template <class T>
CONVOY_VECTORIZED void dropout_kernel(const T* x, std::uint64_t stream, std::uint64_t word, std::uint64_t threshold,
                                      float scale, std::int64_t first, std::int64_t last, T* y) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = first; i < last; ++i) {
    const bool kept = random_word(stream, word + static_cast<std::uint64_t>(i)) >= threshold;
    store(load(x[i]) * (kept ? scale : 0.0F), y + i);  // a product, so that NaN stays one
  }
}

}  // namespace

void OnednnBackend::run(const ops::Dropout& op) {
  const auto* position = op.position.data<std::int64_t>();
  const std::uint64_t stream = random_bits(op.key, static_cast<std::uint64_t>(position[0]));
  const auto word = static_cast<std::uint64_t>(position[1] * op.x.shape().sample_size());
  const std::uint64_t threshold = op.threshold();
  const float scale = op.scale();
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    parallel_ranges(op.x.size(), 4096, [=](std::int64_t first, std::int64_t last, int) {
      dropout_kernel(x, stream, word, threshold, scale, first, last, y);
    });
  });
}

}  // namespace convoy
