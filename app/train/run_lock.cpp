// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_lock.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "app/base/error_report.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kWait{20};  // a stale heartbeat shows after 15
constexpr std::chrono::milliseconds kTellAfter{300};
constexpr std::chrono::milliseconds kRound{400}, kPause{50};  // a round is far below any parallel.timeout

[[noreturn]] void end_process(const std::string& why) {
  report_error(fmt::format("the run's lock is lost: {}; this run ends, so that two do not write one folder", why));
  std::_Exit(static_cast<int>(ExitCode::kFailure));
}

[[noreturn]] void refuse(const std::string& folder, const std::string& path, const LockOwner& holder) {
  fail_busy(
      "run.dir: another training writes to {}: {} (stop that one first, or give this one its own folder with --set "
      "run.name=...; the lock is {})",
      folder, holder.to_string(), path);
}

}  // namespace

std::unique_ptr<LockFile> lock_run_folder(Run& run) {
  const std::string folder = run_folder(run.config);
  const std::string path = folder + "/run.lock";
  LockAttempt attempt(path);
  std::unique_ptr<LockFile> lock;
  const auto start = std::chrono::steady_clock::now();
  bool told = false;
  const auto one_round = [&]() -> std::string {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      fail_system(error.value(), "run.dir: cannot write to {}: {} (choose another folder with --set run.dir=...)",
                  folder, error.message());
    }
    const auto round_start = std::chrono::steady_clock::now();
    while (!(lock = attempt.poll(end_process))) {
      const auto now = std::chrono::steady_clock::now();
      if (!told && now - start > kTellAfter) {
        told = true;
        print_warning(
            fmt::format("another training has locked {}: {}; waiting up to {} s for it to end or to prove stale",
                        folder, attempt.holder().to_string(), kWait.count()));
      }
      if (now - start > kWait) refuse(folder, path, attempt.holder());
      if (now - round_start > kRound) return "wait";
      std::this_thread::sleep_for(kPause);
    }
    return "";
  };
  while (!on_root(*run.communicator, one_round, "locking the run's folder").empty()) {
  }
  return lock;
}

}  // namespace convoy
