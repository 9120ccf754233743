// SPDX-License-Identifier: Apache-2.0
//
// Errors that the operating system reports (errno). Some say that what the user named is wrong: another start finds the
// same (exit code 2). All others are of a machine at a moment, such as a full disk or an I/O error: another start, or
// another host, may do it (exit code 1).
#pragma once

#include <cerrno>
#include <string>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/host_name.h"

namespace convoy {

class SystemError : public Error {
 public:
  SystemError(const std::string& message, ExitCode code, std::string host)
      : Error(message, code), host_(std::move(host)) {}
  /// The host whose system could not do it, or kNoHost.
  [[nodiscard]] const std::string& host() const noexcept { return host_; }

 private:
  std::string host_;
};

/// The host of an Error that is a SystemError; empty for any other.
[[nodiscard]] inline std::string host_at_fault(const Error& error) {
  const auto* of_system = dynamic_cast<const SystemError*>(&error);
  return of_system == nullptr ? "" : of_system->host();
}

/// Whether a machine could not do it at a moment: a SystemError that says nothing against the input.
[[nodiscard]] inline bool is_system_fault(const Error& error) {
  return !host_at_fault(error).empty() && error.code() != ExitCode::kUsage;
}

/// Throws an Error with another message, and the exit code and host of `cause`.
[[noreturn]] inline void fail_as(const Error& cause, const std::string& message) {
  if (const auto* of_system = dynamic_cast<const SystemError*>(&cause); of_system != nullptr) {
    throw SystemError(message, cause.code(), of_system->host());
  }
  throw Error(message, cause.code());
}

/// The same for what one rank alone looks at: where the input is at fault, no host is.
[[noreturn]] inline void fail_alone_as(const Error& cause, const std::string& message) {
  if (is_system_fault(cause)) fail_as(cause, message);
  throw Error(message, cause.code());
}

/// The same with exit code 1: it happened while running, and another start may find it changed.
[[noreturn]] inline void fail_running_as(const Error& cause, const std::string& message) {
  const std::string host = host_at_fault(cause);
  if (!host.empty()) throw SystemError(message, ExitCode::kFailure, host);
  throw Error(message, ExitCode::kFailure);
}

/// Whether `reason` (an errno) says that a path or an option is wrong.
[[nodiscard]] inline bool is_input_fault(int reason) noexcept {
  switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case EXDEV:
    case ENXIO:
    case ENODEV:
    case EOPNOTSUPP: return true;
    default: return false;
  }
}

/// Throws an Error of this host, with the exit code that follows from `reason` (an errno).
template <class... Args>
[[noreturn]] void fail_system(int reason, fmt::format_string<Args...> format, Args&&... args) {
  throw SystemError(fmt::format(format, std::forward<Args>(args)...),
                    is_input_fault(reason) ? ExitCode::kUsage : ExitCode::kFailure, host_name());
}

/// Throws an Error of this host with exit code 1: reading or writing failed while running, whatever the reason.
template <class... Args>
[[noreturn]] void fail_io(fmt::format_string<Args...> format, Args&&... args) {
  throw SystemError(fmt::format(format, std::forward<Args>(args)...), ExitCode::kFailure, host_name());
}

/// Stands for the host when what failed belongs to no host, such as a lock that another process holds.
inline constexpr const char* kNoHost = "(none)";

/// Throws an Error with exit code 1 that belongs to no host: somebody else holds it now.
template <class... Args>
[[noreturn]] void fail_busy(fmt::format_string<Args...> format, Args&&... args) {
  throw SystemError(fmt::format(format, std::forward<Args>(args)...), ExitCode::kFailure, kNoHost);
}

}  // namespace convoy
