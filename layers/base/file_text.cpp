// SPDX-License-Identifier: Apache-2.0
#include "layers/base/file_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace convoy {

std::optional<std::string> file_text(const std::string& path) {
  constexpr std::size_t kStep = 64 << 10;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  struct stat status {};
  // One byte more than there should be, so that the end is seen at once; files of /proc say that they have none.
  const std::size_t expected =
      ::fstat(descriptor, &status) == 0 && status.st_size > 0 ? static_cast<std::size_t>(status.st_size) + 1 : kStep;
  std::string text;
  std::size_t filled = 0;
  ssize_t count = 1;
  while (count > 0) {
    text.resize(filled + (filled == 0 ? expected : kStep));
    count = ::read(descriptor, text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR)
      count = 1;
    else if (count > 0)
      filled += static_cast<std::size_t>(count);
  }
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (count < 0) return std::nullopt;
  text.resize(filled);
  return text;
}

}  // namespace convoy
