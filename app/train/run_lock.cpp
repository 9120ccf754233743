// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_lock.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "app/base/error_report.h"
#include "app/build/run_record.h"
#include "io/files/create_folders.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRunLock = "run.lock";
constexpr std::chrono::seconds kWait{20};  // a stale heartbeat shows after 15
constexpr std::chrono::milliseconds kTellAfter{300};
constexpr std::chrono::milliseconds kRound{400}, kPause{50};  // a round is far below any parallel.timeout

[[noreturn]] void end_process(const std::string& why) {
  report_error(fmt::format("the run's lock is lost: {}; this run ends, so that two do not write one folder", why));
  std::_Exit(static_cast<int>(ExitCode::kFailure));
}

// A folder to lock.
struct LockedFolder {
  std::string folder;
  const char* lock;    // name of the file
  const char* key;     // that names the folder
  const char* remedy;  // how to give a run another one
};

[[noreturn]] void refuse(const LockedFolder& what, const std::string& path, const LockOwner& holder) {
  fail_busy(
      "{}: another training writes to {}: {} (stop that one first, or give this one its own folder with --set {}=...; "
      "the lock is {})",
      what.key, what.folder, holder.to_string(), what.remedy, path);
}

std::unique_ptr<LockFile> lock_folder(Run& run, const LockedFolder& what) {
  const std::string& folder = what.folder;
  const std::string path = folder + "/" + what.lock;
  LockAttempt attempt(path);
  std::unique_ptr<LockFile> lock;
  const auto start = std::chrono::steady_clock::now();
  bool told = false;
  const auto one_round = [&]() -> std::string {
    if (const std::error_code error = create_folders(folder)) {
      fail_system(error.value(), "{0}: cannot write to {1}: {2} (choose another folder with --set {0}=...)", what.key,
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
      if (now - start > kWait) refuse(what, path, attempt.holder());
      if (now - round_start > kRound) return "wait";
      std::this_thread::sleep_for(kPause);
    }
    return "";
  };
  while (!on_root(*run.communicator, one_round, "locking the run's folder").empty()) {
  }
  return lock;
}

// The checkpoints of another run are in its folder, which has no lock for them alone.
void refuse_folder_of_another_run(const std::string& dir) {
  for (fs::path parent = fs::path(dir).parent_path(); parent.has_relative_path(); parent = parent.parent_path()) {
    std::error_code ignored;
    if (!has_run_record(parent.string()) && !fs::exists(parent / kRunLock, ignored)) continue;
    fail_usage("checkpoint.dir: {} lies in the folder of another run, {} (give this run one of its own)", dir,
               parent.string());
  }
}

}  // namespace

RunLocks lock_run_folders(Run& run) {
  RunLocks locks;
  const std::string folder = run_folder(run.config), dir = checkpoint_folder(run.config);
  locks.folder = lock_folder(run, {folder, kRunLock, "run.dir", "run.name"});
  const auto outside = [&]() -> std::string {
    const std::string real_dir = canonical_path(dir);
    if (lies_in(real_dir, canonical_path(folder))) return "";
    refuse_folder_of_another_run(real_dir);
    std::error_code ignored;
    if (!fs::exists(real_dir, ignored) && read_run_record(folder).checkpoints == real_dir) {
      fail(
          "{}: is not there, but this run has written checkpoints to it (is its file system mounted? nothing was "
          "changed; to start over, delete {} or choose another run.name)",
          dir, folder);
    }
    return "outside";
  };
  if (!on_root(*run.communicator, outside, "looking at the folder of checkpoints").empty()) {
    locks.checkpoints = lock_folder(run, {dir, "checkpoints.lock", "checkpoint.dir", "checkpoint.dir"});
  }
  return locks;
}

}  // namespace convoy
