// SPDX-License-Identifier: Apache-2.0
//
// This program in a child process, started by posix_spawn(3), for work that may crash or never end: a library that
// trusts the files that it reads. The child is a new process and not a copy of this one, so MPI, threads and GPUs do
// not matter. It has no output, ignores the signals that a terminal or a scheduler sends to all processes of a job, and
// ends with its parent.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convoy {

struct ChildLimits {
  unsigned cpu_seconds = 4;                   ///< of processor time
  std::size_t memory = std::size_t{1} << 30;  ///< bytes beyond those with which it starts
};

struct ChildEnd {
  enum Kind {
    kExited,      ///< with `status`
    kCrashed,     ///< by signal `status`
    kTooLong,     ///< its processor time was used up
    kNotStarted,  ///< the system has no capacity for a process
  };
  Kind kind = kExited;
  int status = 0;
};

/// Runs this program with these arguments, and waits for its end.
[[nodiscard]] ChildEnd run_self(const std::vector<std::string>& arguments);

/// First in the child: applies the limits, leaves no core file, and ignores signals that are not for it.
void prepare_child(const ChildLimits& limits);

}  // namespace convoy
