// SPDX-License-Identifier: Apache-2.0
//
// Copies files that are read together (a data file, its shards, images and their labels) into a folder of their own
// below a stage folder on quick storage, once for all who read them there. The folder's name has a hash of who copies,
// and of the files' paths, sizes and times: what has changed is copied anew. Relies on flock(), which ends with the
// process that holds it. Invariant: a file has its name in the folder only when it is complete; of any number of
// processes that stage the same files one copies, and what a killed one left is removed.
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
  /// Throws an Error of bad input when there are no such files. Writes nothing.
  FileStage(std::string stage_dir, std::vector<std::string> files);
  ~FileStage();
  FileStage(const FileStage&) = delete;
  FileStage& operator=(const FileStage&) = delete;

  /// Where the files are, under their own names, once advance() has returned true, here or in another process.
  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// Of all files.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// How many of them were copied here; 0: all were there.
  [[nodiscard]] std::int64_t copied() const { return copied_; }

  /// Copies, or waits for a process that does, for about so long. True when all is there. Throws an Error of bad input
  /// when it cannot be: no space, no permission, a source that changes.
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
