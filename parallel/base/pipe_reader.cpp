// SPDX-License-Identifier: Apache-2.0
#include "parallel/base/pipe_reader.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

#include <thread>

namespace convoy {

void wait_for_pipe_reader(int descriptor, std::chrono::milliseconds limit) noexcept {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  const auto end = std::chrono::steady_clock::now() + limit;
  int unread = 0;
  while (::ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace convoy
