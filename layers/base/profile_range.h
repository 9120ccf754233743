// SPDX-License-Identifier: Apache-2.0
//
// Names stretches of the host's time for NVIDIA's profilers (NVTX), one range per layer and phase; nothing in a build
// without CUDA, and next to nothing when no profiler listens.
#pragma once

#ifdef CONVOY_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace convoy {

class ProfileRange {
 public:
#ifdef CONVOY_CUDA
  explicit ProfileRange(const char* name) { nvtxRangePushA(name); }
  ~ProfileRange() { nvtxRangePop(); }
#else
  explicit ProfileRange(const char* /*name*/) {}
  ~ProfileRange() = default;
#endif
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace convoy
