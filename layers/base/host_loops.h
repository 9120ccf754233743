// SPDX-License-Identifier: Apache-2.0
//
// How loops over memory use a CPU: static equal parts over OpenMP threads, so that a given thread count always gives
// the same parts, and so the same bits; and vectors as wide as the CPU has.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "layers/base/cpu_features.h"  // IWYU pragma: export
#include "layers/base/rehearsal.h"

// Before a loop whose iterations are independent. Each may still read and write one and the same place, so an
// output may be an input of the same call.
#if defined(__GNUC__) && !defined(__clang__)
#define CONVOY_INDEPENDENT _Pragma("GCC ivdep")
#else
#define CONVOY_INDEPENDENT
#endif

namespace convoy {

/// Calls body(first, last, thread) on [0, count) cut into one contiguous part per thread; fewer threads when a part
/// would have under `grain` items. The body must not throw. Nothing in a rehearsal.
template <class Body>
void parallel_ranges(std::int64_t count, std::int64_t grain, Body&& body) {
  if (rehearsing()) return;
  const std::int64_t wanted = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, grain));
  const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), wanted));
  if (threads == 1) {
    body(std::int64_t{0}, count, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t thread = omp_get_thread_num();
    const std::int64_t team = omp_get_num_threads();
    body(count * thread / team, count * (thread + 1) / team, static_cast<int>(thread));
  }
}

}  // namespace convoy
