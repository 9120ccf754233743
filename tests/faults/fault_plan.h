// SPDX-License-Identifier: Apache-2.0
//
// What the preloaded library of tests/faults does with a system call: count it, fail it once, record it. The
// environment says which (empty or unset: nothing of it):
//
//   CONVOY_FAULT_ROOT     only calls on paths below this folder count
//   CONVOY_FAULT_COMMAND  only in processes of which this is the first argument: train, pack, launch
//   CONVOY_FAULT_RANK     only on this rank
//   CONVOY_FAULT_LOG      each call is appended as "CALL<TAB>PATH": the counting mode
//   CONVOY_FAULT_CALL, CONVOY_FAULT_PATH, CONVOY_FAULT_NUMBER, CONVOY_FAULT_ERROR
//                         call number N (from 1) of this name on paths that match this pattern fails with EIO, ENOSPC
//                         or EINTR; "short": it reads or writes half
//   CONVOY_FAULT_FIRED    made when the call has failed; while it exists none fails, so a restarted rank does not fail
//                         again. Without it the call fails in every process
//   CONVOY_FAULT_RECORD   each call that changed files is appended, with its bytes (disk.py reads it)
//   CONVOY_FAULT_CLOCK    a file whose first 8 bytes are added to CLOCK_REALTIME, in seconds
//
// Paths are relative to the root. Invariant: no function here makes a call that is interposed.
#pragma once

#include <cstdint>
#include <ctime>
#include <mutex>
#include <string>

namespace faults {

/// A call on a file below the root; `path` is empty for every other file.
struct Call {
  const char* name = nullptr;
  std::string path;
  explicit operator bool() const { return !path.empty(); }
};

/// Of a path relative to the folder `at` (a descriptor or AT_FDCWD).
Call call_on(const char* name, int at, const char* path);
/// Of an open file.
Call call_on(const char* name, int descriptor);

enum class Verdict { kGoOn, kFail, kShort };

/// Counts the call; with kFail, errno is set.
Verdict judge(const Call& call);

/// Whether changes are recorded. They are made and recorded in one order: hold record_mutex() over both.
bool records();
std::mutex& record_mutex();
/// operation: create, write, truncate, sync, rename, link, unlink, mkdir, rmdir.
void record(const char* operation, std::uint64_t inode, const std::string& path, const std::string& other,
            std::int64_t offset, const void* bytes, std::size_t count);
/// 0 when there is no such file.
std::uint64_t inode_of(int at, const char* path);
std::uint64_t inode_of(int descriptor);

/// What is added to CLOCK_REALTIME.
std::int64_t clock_offset();

}  // namespace faults
