// SPDX-License-Identifier: Apache-2.0
//
// The largest memory that this process has held: as Linux counts it (proc(5): VmHWM), or on its GPU.
#pragma once

#include <cstdint>

#include "layers/backend/backend.h"

namespace convoy {

/// Forgets what was before, where the kernel lets us.
void reset_peak_memory();
/// Bytes of resident memory at most since then, 0 where it cannot be told; where a GPU computes, what the backend's
/// tensors took of its memory.
[[nodiscard]] std::int64_t peak_memory(Backend& backend);

}  // namespace convoy
