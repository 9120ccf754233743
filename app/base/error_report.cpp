// SPDX-License-Identifier: Apache-2.0
#include "app/base/error_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <set>
#include <utility>

#include "layers/base/message_text.h"

namespace convoy {

namespace {

struct Listener {
  std::mutex mutex;  // errors may be reported by threads of their own, such as that of a lock
  std::function<void(const std::string&)> call;
};

Listener& listener() {
  static Listener one;
  return one;
}

}  // namespace

void print_warning(const std::string& message) {
  std::cerr << "convoy: warning: " + message_text(message) + "\n" << std::flush;
}

void print_note(const std::string& message) {
  static std::set<std::string> written;
  if (message.empty() || !written.insert(message).second) return;
  std::cerr << "convoy: note: " + message_text(message) + "\n" << std::flush;
}

void on_error_report(std::function<void(const std::string&)> call) {
  const std::lock_guard guard(listener().mutex);
  listener().call = std::move(call);
}

void report_error(const std::string& message, const std::string& host) noexcept {
  try {
    std::cerr << "convoy: error: " + message_text(message) + "\n" << std::flush;
    {
      const std::lock_guard guard(listener().mutex);
      if (listener().call) listener().call(message);
    }
    const char* path = std::getenv(kErrorFileVariable);
    if (path == nullptr) return;
    const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0) return;  // the message is on stderr; the supervisor then takes the exit code alone
    const std::string line = (host.empty() ? "" : kFaultyHost + host + "\n") + message_text(message) + "\n";
    const ssize_t written = ::write(descriptor, line.data(), line.size());
    static_cast<void>(written);
    ::close(descriptor);
  } catch (...) {  // out of memory or no stderr: nothing can be reported
    return;
  }
}

}  // namespace convoy
