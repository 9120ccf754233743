// SPDX-License-Identifier: Apache-2.0
//
// Programs that launch starts. Relies on Linux: the child asks the kernel for a signal when its parent's thread ends,
// so a launch that is killed leaves nothing behind. Invariant: a ChildProcess that is destroyed has ended, with its
// group.
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

  /// Starts argv[0], looked for in PATH, in a process group of its own, with nothing on stdin. Throws when there can be
  /// no process; a program that is not there ends with code 127 after a line on stderr.
  ChildProcess(const std::vector<std::string>& argv, const Options& options);
  /// Kills what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// How it ended; nothing while it runs. Never waits.
  std::optional<ExitStatus> poll();
  /// To the process alone, not to its group.
  void signal(int number) const;
  /// SIGKILL to it, its group and all its descendants on this machine.
  void kill_all();

 private:
  pid_t pid_ = -1;
  std::optional<ExitStatus> ended_;
};

/// What a short program wrote.
struct Captured {
  ExitStatus status;
  bool timed_out = false;
  std::string output, errors;  ///< at most 1 MiB each
};

/// Runs it to its end, or kills it after `limit`.
[[nodiscard]] Captured capture(const std::vector<std::string>& argv, std::chrono::milliseconds limit);

/// "a 'b c'" -> a, b c: words as a shell cuts them, with both kinds of quotes and no expansion. Throws a usage Error,
/// which names `what`, for a quote that is not closed.
[[nodiscard]] std::vector<std::string> split_command(const std::string& text, const std::string& what);

}  // namespace convoy
