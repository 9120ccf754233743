// SPDX-License-Identifier: Apache-2.0
#include "app/base/error_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace convoy {

void report_error(const std::string& message) noexcept {
  try {
    std::cerr << "convoy: error: " + message + "\n" << std::flush;
    const char* path = std::getenv(kErrorFileVariable);
    if (path == nullptr) return;
    const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0) return;  // the message is on stderr; the supervisor then takes the exit code alone
    const std::string line = message + "\n";
    const ssize_t written = ::write(descriptor, line.data(), line.size());
    static_cast<void>(written);
    ::close(descriptor);
  } catch (...) {  // out of memory or no stderr: nothing can be reported
    return;
  }
}

}  // namespace convoy
