// SPDX-License-Identifier: Apache-2.0
//
// A rehearsal: training steps that ask for the memory of real ones and compute nothing, so that the memory pool's peak
// is known before any memory is used. While a Rehearsal lives, loops over memory on its thread do nothing
// (parallel_ranges()), the CPU backend runs no primitives, and a CPU backend that is made reserves address space in
// place of memory. Layers, models, optimizers and schedules run as they are. Invariant: values never decide how much
// memory an operation asks for.
#pragma once

namespace convoy {

namespace rehearsal_detail {
inline constinit thread_local bool active = false;
}  // namespace rehearsal_detail

/// Whether a Rehearsal lives on this thread.
[[nodiscard]] inline bool rehearsing() { return rehearsal_detail::active; }

/// One at a time on a thread. Backends made within it must not outlive it.
class Rehearsal {
 public:
  Rehearsal() { rehearsal_detail::active = true; }
  ~Rehearsal() { rehearsal_detail::active = false; }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
};

}  // namespace convoy
