// SPDX-License-Identifier: Apache-2.0
//
// Relies on POSIX calls only. Invariant: the temporary file is removed on every way out but a rename or a kill of the
// process; what a killed process leaves has the suffix kTemporarySuffix.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::size_t kWriteBytes = 16 << 20;  // at once: a kill or a full disk is noticed soon

const char* remedy(int reason) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "; free space there, or name another folder";
    case EACCES:
    case EPERM:
    case EROFS: return "; name a folder that may be written";
    default: return "";
  }
}

[[noreturn]] void fail_system(const char* what, const std::string& path, int reason) {
  fail("cannot {} {}: {}{}", what, path, std::strerror(reason), remedy(reason));
}

// Makes the new name of a file in `folder` last. Some file systems cannot sync a folder; they need no sync.
void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_system("open folder", folder, errno);
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) fail_system("sync folder", folder, reason);
}

// An open file that is closed and removed unless release() was called.
class Temporary {
 public:
  explicit Temporary(std::string path)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail_system("create", path_, errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  void close() {
    const int result = ::close(std::exchange(descriptor_, -1));
    if (result != 0) fail_system("close", path_, errno);
  }
  void rename_to(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) fail_system("create", path, errno);
    path_.clear();
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_system("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes, std::span<const std::byte> tail) {
  Temporary file(path + kTemporarySuffix);
  write_all(file.descriptor(), bytes, path);
  write_all(file.descriptor(), tail, path);
  if (::fsync(file.descriptor()) != 0) fail_system("write", path, errno);
  file.close();
  file.rename_to(path);
  const auto folder = std::filesystem::path(path).parent_path();
  sync_folder(folder.empty() ? "." : folder.string());
}

}  // namespace convoy
