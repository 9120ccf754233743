// SPDX-License-Identifier: Apache-2.0
//
// Runs code that may crash, or never end, where that harms nobody: in a child process, a copy of this one (fork(2)
// without exec). For libraries that trust the files they read. Relies on the C library to make its memory functions
// usable in the child of a process with threads, as glibc does; so `body` uses memory, files and the library under
// trial, no other thread, no MPI and no GPU. Invariant: the child ends before run_trial() returns, leaves no core file
// and prints nothing.
#pragma once

#include <cstddef>
#include <functional>

namespace convoy {

struct TrialLimits {
  unsigned cpu_seconds = 4;                   ///< of processor time
  std::size_t memory = std::size_t{1} << 30;  ///< bytes beyond those that this process has
};

struct TrialEnd {
  enum Kind {
    kReturned,  ///< `body` came to its end, by an exception or not
    kCrashed,   ///< by `signal`
    kTooLong,   ///< its processor time was used up
    kNotTried   ///< there could be no child: the system has no room for one
  };
  Kind kind = kReturned;
  int signal = 0;
};

[[nodiscard]] TrialEnd run_trial(const std::function<void()>& body, const TrialLimits& limits = {});

}  // namespace convoy
