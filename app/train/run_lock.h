// SPDX-License-Identifier: Apache-2.0
//
// Prevents two training runs from writing to one folder: rank 0 holds RUNFOLDER/run.lock during the run, and
// checkpoints.lock in a checkpoint.dir outside the run's folder. Relies on io/files/lock_file.h. Invariant: the locks
// are held while checkpoints are searched and while files of the run are written.
#pragma once

#include <memory>

#include "app/build/build_run.h"
#include "io/files/lock_file.h"

namespace convoy {

/// Null on ranks other than 0.
struct RunLocks {
  std::unique_ptr<LockFile> folder;
  std::unique_ptr<LockFile> checkpoints;  ///< null too when they are in the run's folder
};

/// Waits up to 20 s for a previous run whose ranks are still ending, then throws a collective usage Error that names
/// it. If a lock is lost later, the process reports it and exits with code 1. Collective.
[[nodiscard]] RunLocks lock_run_folders(Run& run);

}  // namespace convoy
