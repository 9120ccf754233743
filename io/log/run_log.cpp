// SPDX-License-Identifier: Apache-2.0
//
// One line is one write() to a file opened with O_APPEND. A line that cannot be written, as on a full disk, never stops
// a run.
#include "io/log/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "layers/base/clock.h"
#include "layers/base/message_text.h"
#include "layers/base/system_error.h"

namespace convoy {

RunLog::RunLog(const std::string& path)
    : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) {
    fail_system(errno, "run.dir: cannot write {}: {} (choose another folder with --set run.dir=...)", path,
                std::strerror(errno));
  }
}

RunLog::~RunLog() { ::close(descriptor_); }

void RunLog::write(std::string_view level, std::string_view text) {
  const std::string line = fmt::format("{} {}: {}\n", local_time(), level, message_text(text));
  const std::scoped_lock lock(mutex_);
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, line.data(), line.size());
}

}  // namespace convoy
