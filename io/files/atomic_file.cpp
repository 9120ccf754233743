// SPDX-License-Identifier: Apache-2.0
//
// Relies on POSIX calls, and on Linux's O_DIRECT where the file system supports it. Invariant: the temporary file is
// renamed or removed unless the process is killed; the next write of the same file removes what a killed process left.
#include "io/files/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "io/files/own_file.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

constexpr std::size_t kWriteBytes = 16 << 20;   // per write(): a full disk is noticed soon
constexpr std::size_t kDirectAlignment = 4096;  // of address, offset and size: the largest that is required in practice

[[noreturn]] void cannot(const char* what, const std::string& path, int reason) {
  fail_io("cannot {} {}: {}{}", what, path, std::strerror(reason), write_remedy(reason));
}

// Writes as much of `bytes` as possible at the start of the file, bypassing the page cache (O_DIRECT): this saves a
// copy in memory. Returns the rest.
std::span<const std::byte> write_direct(int descriptor, std::span<const std::byte> bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kDirectAlignment != 0) return bytes;
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return bytes;
  while (bytes.size() >= kDirectAlignment) {
    const std::size_t size = std::min(bytes.size() / kDirectAlignment * kDirectAlignment, kWriteBytes);
    const ssize_t written = ::write(descriptor, bytes.data(), size);
    if (written <= 0) break;  // an error that persists is reported by the buffered write
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (static_cast<std::size_t>(written) % kDirectAlignment != 0) break;
  }
  if (::fcntl(descriptor, F_SETFL, flags) != 0) fail("cannot go back to plain writes: {}", std::strerror(errno));
  return bytes;
}

// The temporary file of `target`. Its writer holds flock() on it, so that others know it from one of a dead process.
std::string temporary_name(const std::string& target) {
  return fmt::format("{}.{}{}", target, unguessable_digits(), kTemporarySuffix);
}

// Removes temporary files of `target` whose writers were killed. Without flock() they stay, under names that nobody
// uses again.
void remove_dead_temporaries(const std::string& target) {
  namespace fs = std::filesystem;
  const fs::path path(target);
  std::vector<fs::path> found;
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_temporary_of(at->path().filename().string(), path.filename().string())) found.push_back(at->path());
  }
  for (const fs::path& temporary : found) {
    const int descriptor = open_own_file(temporary.string(), O_WRONLY);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(temporary.c_str());
    ::close(descriptor);
  }
}

}  // namespace

const char* write_remedy(int reason) {
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

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  remove_dead_temporaries(path_);
  do {  // another process may take the file for a dead one's before this one has locked it
    if (descriptor_ >= 0) ::close(descriptor_);
    temporary_ = temporary_name(path_);
    descriptor_ = create_new_file(temporary_, 0644);
    if (descriptor_ < 0) cannot("create", temporary_, errno);
    static_cast<void>(::flock(descriptor_, LOCK_EX));
  } while (is_removed());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool AtomicFile::is_removed() const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 && status.st_nlink == 0;
}

void AtomicFile::sync() const {
  if (::fsync(descriptor_) != 0) cannot("write", path_, errno);
}

// Closed before it is renamed, since close() may report an error. A copy of the descriptor holds the lock meanwhile.
void AtomicFile::finish() {
  sync();
  const int lock = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  const bool closed = ::close(std::exchange(descriptor_, lock)) == 0;
  if (!closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) cannot("create", path_, errno);
  temporary_.clear();
  sync_folder_of(path_);
}

void sync_folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  int descriptor = -1;
  do descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) cannot("open folder", folder, errno);
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (result != 0 && reason != EINVAL && reason != ENOTSUP) cannot("sync folder", folder, reason);
}

bool is_temporary_of(std::string_view name, std::string_view target) {
  const std::string_view suffix = kTemporarySuffix;
  if (!name.starts_with(target) || !name.ends_with(suffix) || name.size() < target.size() + suffix.size()) return false;
  name.remove_prefix(target.size());
  name.remove_suffix(suffix.size());
  return name.starts_with('.') && are_unguessable_digits(name.substr(1));
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      cannot("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

int pwrite_all(int descriptor, std::span<const std::byte> bytes, std::int64_t at) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    at += written;
  }
  return 0;
}

void finish_file(const std::string& temporary, const std::string& path) {
  const int descriptor = open_own_file(temporary, O_WRONLY);
  if (descriptor < 0) cannot("open", temporary, errno);
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (result != 0) cannot("write", temporary, reason);
  if (::rename(temporary.c_str(), path.c_str()) != 0) cannot("create", path, errno);
  sync_folder_of(path);
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes, std::span<const std::byte> tail) {
  AtomicFile file(path);
  write_all(file.descriptor(), write_direct(file.descriptor(), bytes), path);
  write_all(file.descriptor(), tail, path);
  file.finish();
}

}  // namespace convoy
