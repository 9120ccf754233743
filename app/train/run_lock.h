// SPDX-License-Identifier: Apache-2.0
//
// Keeps two trainings from writing one run folder: rank 0 holds RUNFOLDER/run.lock for the run's whole life. Relies on
// io/lock_file. Invariant: whoever looks for checkpoints, or writes any file of the run, holds the lock.
#pragma once

#include <memory>

#include "app/build/build_run.h"
#include "io/files/lock_file.h"

namespace convoy {

/// Waits up to 20 s for a predecessor whose ranks are still ending, then throws a collective usage Error that names it.
/// Null on other ranks than 0. When the lock is lost later, the process says so and ends with exit code 1. Every rank
/// calls it.
[[nodiscard]] std::unique_ptr<LockFile> lock_run_folder(Run& run);

}  // namespace convoy
