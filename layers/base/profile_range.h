// SPDX-License-Identifier: Apache-2.0
//
// Names spans of the host's time, one range per layer and phase: for `convoy bench --profile` and, in builds with CUDA,
// for NVIDIA's profilers (NVTX). Costs next to nothing without a profiler. Names outlive their range. Invariant: ranges
// of a thread end in the reverse order of their beginnings.
#pragma once

#include <array>
#include <cstddef>

#ifdef CONVOY_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace convoy {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name) {
    if (depth_ < kDepth) names_[depth_] = name;
    ++depth_;
#ifdef CONVOY_CUDA
    nvtxRangePushA(name);
#endif
  }
  ~ProfileRange() {
    --depth_;
#ifdef CONVOY_CUDA
    nvtxRangePop();
#endif
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  /// The name of the first range that this thread has entered and not left, a phase of the step; "" outside of all.
  [[nodiscard]] static const char* outermost() { return depth_ == 0 ? "" : names_[0]; }
  /// The name of the range that this thread is in, the innermost one; "" outside of all.
  [[nodiscard]] static const char* innermost() {
    if (depth_ == 0) return "";
    return names_[(depth_ < kDepth ? depth_ : kDepth) - 1];
  }

 private:
  static constexpr std::size_t kDepth = 8;
  inline static thread_local std::array<const char*, kDepth> names_{};
  inline static thread_local std::size_t depth_ = 0;
};

}  // namespace convoy
