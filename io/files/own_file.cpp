// SPDX-License-Identifier: Apache-2.0
#include "io/files/own_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <random>

namespace convoy {

namespace {

constexpr std::size_t kUnguessableDigits = 16;

}  // namespace

std::string unguessable_digits() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool are_unguessable_digits(std::string_view text) {
  return text.size() == kUnguessableDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

int create_new_file(const std::string& path, mode_t mode) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

int open_own_file(const std::string& path, int flags, mode_t mode) {
  const int descriptor =
      ::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);  // a pipe must not block
  if (descriptor < 0) return -1;
  struct stat status {};
  int reason = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (reason == 0 && (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_nlink > 1)) reason = EPERM;
  if (reason == 0) return descriptor;
  ::close(descriptor);
  errno = reason;
  return -1;
}

}  // namespace convoy
