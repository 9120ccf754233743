// SPDX-License-Identifier: Apache-2.0
//
// The largest memory that this process has held, as Linux counts it (proc(5): VmHWM).
#pragma once

#include <cstdint>

namespace convoy {

/// Forgets what was before, where the kernel lets us.
void reset_peak_memory();
/// Bytes of resident memory at most since then; 0 where it cannot be told.
[[nodiscard]] std::int64_t peak_memory();

}  // namespace convoy
