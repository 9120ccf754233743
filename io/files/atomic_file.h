// SPDX-License-Identifier: Apache-2.0
//
// Atomic file writes: the file is written under a temporary name in the same folder, synced and renamed. Relies on
// rename() being atomic within a folder. Invariant: when write_file_atomically() throws, the previous file at `path` is
// unchanged and the temporary file is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace convoy {

/// Suffix of temporary files.
inline constexpr const char* kTemporarySuffix = ".tmp";

/// Writes `bytes`, then `tail`, to `path`, replacing an existing file. Returns once the file is on disk.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes,
                           std::span<const std::byte> tail = {});

/// Syncs the finished file `temporary` and renames it to `path`, in the same folder, replacing an existing file.
void finish_file(const std::string& temporary, const std::string& path);

/// Makes the name of this file, or its removal, durable. File systems that cannot sync a folder do not need it.
void sync_folder_of(const std::string& path);

/// Writes all bytes to an open file, starting at offset `at`. Returns 0 or an errno.
[[nodiscard]] int pwrite_all(int descriptor, std::span<const std::byte> bytes, std::int64_t at);

/// Writes all bytes to an open file. `path` is used in the message of the Error.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

}  // namespace convoy
