// SPDX-License-Identifier: Apache-2.0
//
// How the threads of an OpenMP team wait for each other: by spinning, which reacts fastest and takes the CPU from
// others, or by blocking after a short spin, which gives it to them. Switches at run time; results do not change.
//
// GCC's runtime (libgomp) reads OMP_WAIT_POLICY and GOMP_SPINCOUNT once, but each of its waits spins only briefly while
// the threads of all teams are more than the CPUs. So a second team blocks the waits of the first: its threads sleep on
// a condition variable. It costs memory of that many stacks and no CPU time. LLVM's runtime (libomp) has
// kmp_set_blocktime() instead, which holds for the thread that calls it and its teams.
#pragma once

#include <memory>

namespace convoy {

class OpenmpWaits {
 public:
  OpenmpWaits();
  /// Teams spin again.
  ~OpenmpWaits();
  OpenmpWaits(const OpenmpWaits&) = delete;
  OpenmpWaits& operator=(const OpenmpWaits&) = delete;

  /// From their next wait on, the teams of this process block (true) or spin (false). Returns whether they block: false
  /// also where the process may not have the threads that this takes.
  bool set_blocking(bool blocking) noexcept;

  /// Whether the user chose by a variable of the runtime: OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME, KMP_LIBRARY.
  [[nodiscard]] static bool user_chose();

 private:
  class Team;
  std::unique_ptr<Team> team_;
};

/// With LLVM's runtime: the thread that calls this does as the last set_blocking() said. With GCC's: nothing to do.
void follow_openmp_waits() noexcept;

}  // namespace convoy
