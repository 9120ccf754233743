// SPDX-License-Identifier: Apache-2.0
//
// A thread that samples whether this process competes for its CPUs (contention.h), and while it does makes its waits
// block: those of OpenMP teams (openmp_waits.h), and all that ask cpus_contended(). Without contention a sample is one
// system call. Invariant: nothing here changes a result.
#pragma once

#include <memory>

#include "layers/cpu/wait_policy.h"

namespace convoy {

/// Whether waits should block now, since others want the CPU: of the monitor of this process; false without one. Cheap.
[[nodiscard]] bool cpus_contended() noexcept;

class ContentionMonitor {
 public:
  /// Begins to sample. The policies "active" and "passive" sample nothing and set waits once. One object at a time.
  explicit ContentionMonitor(WaitPolicy policy);
  /// Waits spin again.
  ~ContentionMonitor();
  ContentionMonitor(const ContentionMonitor&) = delete;
  ContentionMonitor& operator=(const ContentionMonitor&) = delete;

  /// True once, after the CPUs were contended for the first time.
  [[nodiscard]] bool take_first_contention() noexcept;

 private:
  class Sampler;
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace convoy
