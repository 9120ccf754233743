// SPDX-License-Identifier: Apache-2.0
//
// Files that are there whole or not at all: written beside the final name, synced, renamed. Relies on rename() being
// atomic within a folder. Invariant: when write_file_atomically() throws, what was at `path` before is still there, and
// nothing of the attempt is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace convoy {

/// The end of the name under which a file is written before it has its own.
inline constexpr const char* kTemporarySuffix = ".tmp";

/// Puts a file with these bytes, then those of `tail`, at `path`, replacing one that is there, and returns once it is
/// on disk.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes,
                           std::span<const std::byte> tail = {});

/// Brings the finished file `temporary` to the disk and gives it the name `path`, in the same folder, replacing a file
/// that is there.
void finish_file(const std::string& temporary, const std::string& path);

/// Writes all bytes at that place of an open file; 0, or the errno of what failed.
[[nodiscard]] int pwrite_all(int descriptor, std::span<const std::byte> bytes, std::int64_t at);

/// Writes all bytes to an open file; `path` is for the message of the Error.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

}  // namespace convoy
