// SPDX-License-Identifier: Apache-2.0
//
// Prevents two training runs from writing to one run folder: rank 0 holds RUNFOLDER/run.lock during the run. Relies on
// io/files/lock_file.h. Invariant: the lock is held while checkpoints are searched and while files of the run are
// written.
#pragma once

#include <memory>

#include "app/build/build_run.h"
#include "io/files/lock_file.h"

namespace convoy {

/// Waits up to 20 s for a previous run whose ranks are still ending, then throws a collective usage Error that names
/// it. Null on ranks other than 0. If the lock is lost later, the process reports it and exits with code 1. Collective.
[[nodiscard]] std::unique_ptr<LockFile> lock_run_folder(Run& run);

}  // namespace convoy
