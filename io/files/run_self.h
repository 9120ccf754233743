// SPDX-License-Identifier: Apache-2.0
//
// Runs this program in a child process (posix_spawn(3)) for work that may crash or loop, such as a library that trusts
// its input files. The child is a new process rather than a fork, so it is independent of MPI, threads and GPUs. It has
// no output, ignores the signals that a terminal or a scheduler sends to all processes of a job, and ends with its
// parent.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace convoy {

struct ChildLimits {
  unsigned cpu_seconds = 4;                   ///< CPU time
  std::size_t memory = std::size_t{1} << 30;  ///< bytes of address space in addition to that at the start
};

struct ChildEnd {
  enum Kind {
    kExited,      ///< with `status`
    kCrashed,     ///< by signal `status`
    kTooLong,     ///< it exceeded its CPU time
    kNoAnswer,    ///< it had not ended within the time allowed, and was killed
    kNotStarted,  ///< the system could not create a process
  };
  Kind kind = kExited;
  int status = 0;
};

/// Runs this program with these arguments and waits until it exits, at most for `limit`: its CPU time does not pass
/// while it waits for a file server.
[[nodiscard]] ChildEnd run_self(const std::vector<std::string>& arguments,
                                std::chrono::milliseconds limit = std::chrono::minutes(5));

/// First call in the child: applies the limits, disables core files, and ignores signals that are meant for the parent.
void prepare_child(const ChildLimits& limits);

}  // namespace convoy
