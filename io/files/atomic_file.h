// SPDX-License-Identifier: Apache-2.0
//
// Atomic file writes: the file is written under a temporary name in the same folder, synced and renamed. The name
// cannot be guessed (own_file.h). Relies on rename() being atomic within a folder. Invariant: when
// write_file_atomically() throws, the previous file at `path` is unchanged and the temporary file is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// Suffix of temporary files.
inline constexpr const char* kTemporarySuffix = ".tmp";

/// Whether `name` is that of a temporary file of `target` (both without folders): TARGET.<16 digits>.tmp.
[[nodiscard]] bool is_temporary_of(std::string_view name, std::string_view target);

/// What a user can do about this errno of a write, as the end of a message: "; free space there, ...", or nothing.
[[nodiscard]] const char* write_remedy(int reason);

/// A new file, written piece by piece under its temporary name.
class AtomicFile {
 public:
  /// Creates the temporary file beside `path`, and removes those of killed processes.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Removes the temporary file unless finish() has returned.
  ~AtomicFile();

  [[nodiscard]] int descriptor() const { return descriptor_; }  ///< open for reading and writing
  [[nodiscard]] const std::string& temporary() const { return temporary_; }
  /// Syncs the file to the disk.
  void sync() const;
  /// Syncs and renames it to `path`, replacing an existing file. Returns once the name, too, is on disk.
  void finish();

 private:
  [[nodiscard]] bool is_removed() const;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

/// Writes `bytes`, then `tail`, to `path`, replacing an existing file. Returns once the file is on disk.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes,
                           std::span<const std::byte> tail = {});

/// Syncs the finished file `temporary`, which must be this user's, and renames it to `path`, in the same folder,
/// replacing an existing file.
void finish_file(const std::string& temporary, const std::string& path);

/// Makes the name of this file, or its removal, durable. File systems that cannot sync a folder do not need it.
void sync_folder_of(const std::string& path);

/// Writes all bytes to an open file, starting at offset `at`. Returns 0 or an errno.
[[nodiscard]] int pwrite_all(int descriptor, std::span<const std::byte> bytes, std::int64_t at);

/// Writes all bytes to an open file. `path` is used in the message of the Error.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

}  // namespace convoy
