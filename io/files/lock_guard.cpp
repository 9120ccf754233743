// SPDX-License-Identifier: Apache-2.0
#include "io/files/lock_guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

namespace convoy {

namespace {

// The guard's file is never removed: other processes may hold locks on it.
std::string guard_path(const std::string& lock_path) {
  const std::filesystem::path path(lock_path);
  return (path.parent_path() / fmt::format(".{}.guard", path.filename().string())).string();
}

}  // namespace

RemovalGuard::RemovalGuard(const std::string& lock_path, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  descriptor_ = ::open(guard_path(lock_path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return;
  for (;;) {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) break;
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // the file system does not support flock()
    if (std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  held_ = true;
}

RemovalGuard::~RemovalGuard() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace convoy
