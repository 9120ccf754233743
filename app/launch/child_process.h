// SPDX-License-Identifier: Apache-2.0
//
// Child processes of launch. Relies on Linux's PR_SET_PDEATHSIG: a launch that is killed leaves no child behind.
// Invariant: after the destructor the process and its process group have ended, or been killed and hang in the kernel.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convoy {

/// How a program ended.
struct ExitStatus {
  int code = 0;    ///< of exit(), 128 + signal when a signal ended it (as shells say it)
  int signal = 0;  ///< that ended it, or 0
};

class ChildProcess {
 public:
  struct Options {
    std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of this process's
    int output = -1;                                               ///< descriptor for stdout; -1: this process's
    int errors = -1;                                               ///< the same for stderr
  };

  /// Starts argv[0], searched in PATH, in its own process group, with stdin from /dev/null. Throws when no process can
  /// be created; if the program is not found, the child exits with code 127 and a message on stderr.
  ChildProcess(const std::vector<std::string>& argv, const Options& options);
  /// Kills the process group if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The exit status; nothing while it runs. Does not block.
  std::optional<ExitStatus> poll();
  /// Sends a signal to the process, not to its group.
  void signal(int number) const;
  /// SIGKILL to it, its group and all its descendants on this machine.
  void kill_all();

 private:
  pid_t pid_ = -1;
  std::optional<ExitStatus> ended_;
};

/// The output of a program.
struct Captured {
  ExitStatus status;  ///< of one that did not time out
  bool timed_out = false;
  std::string output, errors;  ///< at most 1 MiB each
};

/// Runs a program until it exits, or kills it after `limit`.
[[nodiscard]] Captured capture(const std::vector<std::string>& argv, std::chrono::milliseconds limit);

/// "a 'b c'" -> a, b c: words as a shell cuts them, with both kinds of quotes and no expansion. Throws a usage Error,
/// which names `what`, for a quote that is not closed.
[[nodiscard]] std::vector<std::string> split_command(const std::string& text, const std::string& what);

}  // namespace convoy
