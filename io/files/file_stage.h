// SPDX-License-Identifier: Apache-2.0
//
// Copies files that are read together (a data file, its shards, images and their labels) into a folder on fast local
// storage, once for all processes that read them. The folder's name contains a hash of the user and of the files'
// paths, sizes and modification times, so changed files are copied again. All that is written lies in that folder,
// which only the user may enter: the files, a lock, a list of checksums, and unfinished copies. Relies on flock(),
// which the kernel releases when a process ends. Invariant: a file is in the list only when it is complete and on the
// disk, and advance() is true only when every file had its checksum; one process at a time copies the same files, and
// unfinished copies of killed processes are removed.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convoy {

class FileStage {
 public:
  /// Throws a usage Error when a file does not exist. Writes nothing.
  FileStage(std::string stage_dir, std::vector<std::string> files);
  ~FileStage();
  FileStage(const FileStage&) = delete;
  FileStage& operator=(const FileStage&) = delete;

  /// The folder that contains the files, under their own names, once advance() has returned true in any process.
  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// The total size of the files.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Bytes that this process has copied; 0 when all files were present.
  [[nodiscard]] std::int64_t copied() const { return copied_; }
  /// Copies of other processes whose checksum did not hold, and which were replaced.
  [[nodiscard]] int damaged() const { return damaged_; }

  /// Copies, or waits for the process that copies, or verifies its copies, for about this long. True when all files are
  /// present and verified. Throws a usage Error on lack of space or permission, and when a source changes meanwhile.
  bool advance(std::chrono::duration<double> time);

 private:
  using Clock = std::chrono::steady_clock;
  struct Source {
    std::string path, name;
    struct stat status;
    std::optional<std::uint32_t> checksum;  ///< of the copy, as the list says; empty: none is there
  };
  enum class Verdict { kHolds, kDamaged, kMore };

  [[nodiscard]] std::string copy_of(const Source& source) const { return folder_ + "/" + source.name; }
  [[nodiscard]] bool own_folder() const;
  [[nodiscard]] int open_copy(const Source& source) const;
  void read_list();
  void write_list() const;
  [[nodiscard]] bool all_listed() const;
  void make_folders() const;
  bool lock(Clock::time_point until);
  void remove_left() const;
  void check_room() const;
  void open(const Source& source);
  bool copy_until(Source& source, Clock::time_point until);
  Verdict verify_until(const Source& source, Clock::time_point until);
  bool finish_until(Source& source, Clock::time_point until);
  void sync(const Source& source);
  void write(const std::byte* bytes, std::size_t count);
  [[noreturn]] void cannot_write(int reason);
  void close();

  const std::string stage_dir_;
  std::vector<Source> sources_;
  std::string folder_, part_;
  std::int64_t bytes_ = 0, copied_ = 0;
  int damaged_ = 0;
  int lock_ = -1;
  bool looked_ = false, locked_ = false;  // at the list; whether the lock is held
  std::size_t next_ = 0;                  // file
  int from_ = -1, to_ = -1;
  std::int64_t done_ = 0, synced_ = 0;  // bytes of that file
  std::uint32_t checksum_ = 0;          // of those bytes
  std::vector<std::byte> buffer_;
};

}  // namespace convoy
