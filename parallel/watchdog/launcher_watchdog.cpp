// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog/launcher_watchdog.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "parallel/watchdog/without_signals.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kInterval{250};

}  // namespace

LauncherWatchdog::LauncherWatchdog(bool speaks) : launcher_(getppid()), speaks_(speaks) {
  // A stopped process looks at nothing: the kernel wakes it when its parent ends. SIGCONT does no harm to others.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  const WithoutSignals blocked;
  thread_ = std::thread([this] { watch(); });
}

LauncherWatchdog::~LauncherWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void LauncherWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kInterval, [this] { return over_; })) {
    if (getppid() == launcher_) continue;
    if (speaks_) {
      const std::string text =
          fmt::format("convoy: error: the launcher (pid {}) has gone; the ranks on this node end\n", launcher_);
      [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    }
    _exit(1);
  }
}

}  // namespace convoy
