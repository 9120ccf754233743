// SPDX-License-Identifier: Apache-2.0
//
// The exception type of the program. An Error carries the message for the user (the problem, the place, the remedy) and
// the exit code. app/commands/run_cli.cpp reports errors and returns the exit code to `main`.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace convoy {

/// Exit codes of the program (docs/interface.md).
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,  ///< failed while running
  kUsage = 2,    ///< bad usage, config or input, found before training
  kStopped = 75  ///< stopped early with a checkpoint written
};

/// An error: a one-sentence message for the user, and the exit code.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ExitCode code() const noexcept { return code_; }

  /// True when every rank of the job throws this same error at the same point, so that rank 0 alone
  /// reports it and all ranks can end in order.
  [[nodiscard]] bool collective() const noexcept { return collective_; }
  void set_collective() noexcept { collective_ = true; }

 private:
  ExitCode code_;
  bool collective_ = false;
};

/// Throws an Error with exit code 1: something failed while running.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ExitCode::kFailure);
}

/// Throws an Error with exit code 2: the usage, the config or the input is wrong.
template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ExitCode::kUsage);
}

}  // namespace convoy
