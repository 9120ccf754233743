// SPDX-License-Identifier: Apache-2.0
//
// Copies files that are read together (a data file, its shards, images and their labels) into a folder on fast local
// storage, once for all processes that read them. The folder's name contains a hash of the user and of the files'
// paths, sizes and modification times, so changed files are copied again. Relies on flock(), which the kernel releases
// when a process ends. Invariant: a file has its final name only when it is complete; one process at a time copies the
// same files, and unfinished copies of killed processes are removed.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
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

  /// Copies, or waits for the process that copies, for about this long. True when all files are present. Throws a usage
  /// Error on lack of space or permission, and when a source changes meanwhile.
  bool advance(std::chrono::duration<double> time);

 private:
  using Clock = std::chrono::steady_clock;
  struct Source {
    std::string path, name;
    struct stat status;
  };

  [[nodiscard]] bool is_there(const Source& source) const;
  [[nodiscard]] bool own_folder() const;
  [[nodiscard]] bool all_there() const;
  void make_folders();
  bool lock(Clock::time_point until);
  void remove_left() const;
  void check_room() const;
  void open(const Source& source);
  bool copy_until(const Source& source, Clock::time_point until);
  void write(const std::byte* bytes, std::size_t count);
  void close();

  const std::string stage_dir_;
  std::vector<Source> sources_;
  std::string folder_, part_;
  std::int64_t bytes_ = 0, copied_ = 0;
  int lock_ = -1;
  std::size_t next_ = 0;  // file
  int from_ = -1, to_ = -1;
  std::int64_t done_ = 0;  // bytes of that file
  std::vector<std::byte> buffer_;
};

}  // namespace convoy
