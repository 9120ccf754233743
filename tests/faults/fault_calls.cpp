// SPDX-License-Identifier: Apache-2.0
//
// The functions of the C library that are interposed (LD_PRELOAD): those by which convoy, HDF5 and libstdc++ reach
// files, in all their spellings (with 64, and as the compiler checks them), and the clock. What the C library calls by
// itself is not seen, so functions over FILE and remove() are here as well; std::ofstream writes by write() and
// writev(). fault_plan.h says what is done with a call.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include "fault_plan.h"

namespace {

using faults::Call;
using faults::call_on;
using faults::judge;
using faults::Verdict;

// The C library's own function.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

class Recording {
 public:
  explicit Recording(const Call& call) : on_(call && faults::records()) {
    if (on_) faults::record_mutex().lock();
  }
  ~Recording() {
    if (on_) faults::record_mutex().unlock();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  explicit operator bool() const { return on_; }

 private:
  bool on_;
};

template <typename Open>
int opened(int at, const char* path, int flags, const Open& open) {
  const Call call = call_on("open", at, path);
  if (judge(call) == Verdict::kFail) return -1;
  const Recording recording(call);
  const bool existed = recording && faults::inode_of(at, path) != 0;
  const int descriptor = open();
  if (recording && descriptor >= 0) {
    const auto inode = faults::inode_of(descriptor);
    if (!existed) faults::record("create", inode, call.path, "", 0, nullptr, 0);
    if (existed && (flags & O_TRUNC) != 0) faults::record("truncate", inode, call.path, "", 0, nullptr, 0);
  }
  return descriptor;
}

template <typename Open>
FILE* opened_stream(const char* path, const char* mode, const Open& open) {
  FILE* file = nullptr;
  const int flags = *mode == 'w' ? O_TRUNC : 0;
  opened(AT_FDCWD, path, flags, [&] {
    file = open();
    return file == nullptr ? -1 : ::fileno(file);
  });
  return file;
}

template <typename Read>
ssize_t was_read(int descriptor, std::size_t count, const Read& read) {
  switch (judge(call_on("read", descriptor))) {
    case Verdict::kFail: return -1;
    case Verdict::kShort: return read(std::max<std::size_t>(1, count / 2));
    case Verdict::kGoOn: break;
  }
  return read(count);
}

// offset: -1 for the file's own position.
template <typename Write>
ssize_t was_written(int descriptor, const void* bytes, std::size_t count, off_t offset, const Write& write) {
  const Call call = call_on("write", descriptor);
  const Verdict verdict = judge(call);
  if (verdict == Verdict::kFail) return -1;
  if (verdict == Verdict::kShort) count = std::max<std::size_t>(1, count / 2);
  const Recording recording(call);
  const ssize_t written = write(count);
  if (recording && written > 0) {
    // Also with O_APPEND the position is behind what was written.
    const off_t at = offset >= 0 ? offset : ::lseek(descriptor, 0, SEEK_CUR) - written;
    faults::record("write", faults::inode_of(descriptor), call.path, "", at, bytes, static_cast<std::size_t>(written));
  }
  return written;
}

template <typename Change>
int changed(const Call& call, const char* operation, const std::string& other, const Change& change) {
  if (judge(call) == Verdict::kFail) return -1;
  const Recording recording(call);
  const int result = change();
  if (recording && result == 0) faults::record(operation, 0, call.path, other, 0, nullptr, 0);
  return result;
}

template <typename Change>
int resized(const Call& call, std::uint64_t inode, off_t size, const Change& change) {
  if (judge(call) == Verdict::kFail) return -1;
  const Recording recording(call);
  const int result = change();
  if (recording && result == 0) faults::record("truncate", inode, call.path, "", size, nullptr, 0);
  return result;
}

template <typename Sync>
int synced(int descriptor, const Sync& sync) {
  const Call call = call_on("sync", descriptor);
  if (judge(call) == Verdict::kFail) return -1;
  const Recording recording(call);
  const int result = sync();
  if (recording && result == 0) faults::record("sync", faults::inode_of(descriptor), call.path, "", 0, nullptr, 0);
  return result;
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// NOLINTBEGIN(cert-dcl37-c,cert-dcl51-cpp,bugprone-reserved-identifier,cppcoreguidelines-macro-usage)
#define NEXT(name) static auto* const real = next<decltype(::name)>(#name)

extern "C" {

#define OPEN(name)                                                                 \
  int name(const char* path, int flags, ...) {                                     \
    NEXT(name);                                                                    \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = mode_of(flags, arguments);                                 \
    va_end(arguments);                                                             \
    return opened(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); }); \
  }
#define OPENAT(name)                                                             \
  int name(int at, const char* path, int flags, ...) {                           \
    NEXT(name);                                                                  \
    va_list arguments;                                                           \
    va_start(arguments, flags);                                                  \
    const mode_t mode = mode_of(flags, arguments);                               \
    va_end(arguments);                                                           \
    return opened(at, path, flags, [&] { return real(at, path, flags, mode); }); \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open64(path, flags); }
int __openat_2(int at, const char* path, int flags) { return openat(at, path, flags); }
int __openat64_2(int at, const char* path, int flags) { return openat64(at, path, flags); }

int creat(const char* path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return opened_stream(path, mode, [&] { return real(path, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return opened_stream(path, mode, [&] { return real(path, mode); });
}

std::size_t fread(void* bytes, std::size_t size, std::size_t count, FILE* file) {
  NEXT(fread);
  if (judge(call_on("read", ::fileno(file))) == Verdict::kFail) {
    file->_flags |= _IO_ERR_SEEN;
    return 0;
  }
  return real(bytes, size, count, file);
}

int fclose(FILE* file) {
  NEXT(fclose);
  const Call call = call_on("close", ::fileno(file));
  const int result = real(file);
  return judge(call) == Verdict::kFail ? EOF : result;
}

int close(int descriptor) {
  NEXT(close);
  const Call call = call_on("close", descriptor);
  const int result = real(descriptor);
  return judge(call) == Verdict::kFail ? -1 : result;
}

ssize_t read(int descriptor, void* bytes, std::size_t count) {
  NEXT(read);
  return was_read(descriptor, count, [&](std::size_t some) { return real(descriptor, bytes, some); });
}
ssize_t pread(int descriptor, void* bytes, std::size_t count, off_t offset) {
  NEXT(pread);
  return was_read(descriptor, count, [&](std::size_t some) { return real(descriptor, bytes, some, offset); });
}
ssize_t pread64(int descriptor, void* bytes, std::size_t count, off64_t offset) {
  NEXT(pread64);
  return was_read(descriptor, count, [&](std::size_t some) { return real(descriptor, bytes, some, offset); });
}
ssize_t __read_chk(int descriptor, void* bytes, std::size_t count, std::size_t /*room*/) {
  return read(descriptor, bytes, count);
}
ssize_t __pread_chk(int descriptor, void* bytes, std::size_t count, off_t offset, std::size_t /*room*/) {
  return pread(descriptor, bytes, count, offset);
}
ssize_t __pread64_chk(int descriptor, void* bytes, std::size_t count, off64_t offset, std::size_t /*room*/) {
  return pread64(descriptor, bytes, count, offset);
}

ssize_t write(int descriptor, const void* bytes, std::size_t count) {
  NEXT(write);
  return was_written(descriptor, bytes, count, -1, [&](std::size_t some) { return real(descriptor, bytes, some); });
}
ssize_t pwrite(int descriptor, const void* bytes, std::size_t count, off_t offset) {
  NEXT(pwrite);
  const auto write_some = [&](std::size_t some) { return real(descriptor, bytes, some, offset); };
  return was_written(descriptor, bytes, count, offset, write_some);
}
ssize_t pwrite64(int descriptor, const void* bytes, std::size_t count, off64_t offset) {
  NEXT(pwrite64);
  const auto write_some = [&](std::size_t some) { return real(descriptor, bytes, some, offset); };
  return was_written(descriptor, bytes, count, offset, write_some);
}
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  NEXT(writev);
  if (!call_on("write", descriptor)) return real(descriptor, parts, count);
  std::string bytes;  // as one write(), which can be short
  for (int i = 0; i < count; ++i) bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  return write(descriptor, bytes.data(), bytes.size());
}

int fsync(int descriptor) {
  NEXT(fsync);
  return synced(descriptor, [&] { return real(descriptor); });
}
int fdatasync(int descriptor) {
  NEXT(fdatasync);
  return synced(descriptor, [&] { return real(descriptor); });
}

int ftruncate(int descriptor, off_t size) noexcept {
  NEXT(ftruncate);
  return resized(call_on("truncate", descriptor), faults::inode_of(descriptor), size,
                 [&] { return real(descriptor, size); });
}
int ftruncate64(int descriptor, off64_t size) noexcept {
  NEXT(ftruncate64);
  return resized(call_on("truncate", descriptor), faults::inode_of(descriptor), size,
                 [&] { return real(descriptor, size); });
}
int truncate(const char* path, off_t size) noexcept {
  NEXT(truncate);
  const auto inode = faults::inode_of(AT_FDCWD, path);
  return resized(call_on("truncate", AT_FDCWD, path), inode, size, [&] { return real(path, size); });
}

int rename(const char* from, const char* to) noexcept {
  NEXT(rename);
  const std::string other = call_on("rename", AT_FDCWD, to).path;
  return changed(call_on("rename", AT_FDCWD, from), "rename", other, [&] { return real(from, to); });
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  NEXT(renameat2);
  const std::string other = call_on("rename", to_at, to).path;
  return changed(call_on("rename", from_at, from), "rename", other,
                 [&] { return real(from_at, from, to_at, to, flags); });
}
int link(const char* from, const char* to) noexcept {
  NEXT(link);
  const std::string other = call_on("link", AT_FDCWD, to).path;
  return changed(call_on("link", AT_FDCWD, from), "link", other, [&] { return real(from, to); });
}
int unlink(const char* path) noexcept {
  NEXT(unlink);
  return changed(call_on("unlink", AT_FDCWD, path), "unlink", "", [&] { return real(path); });
}
int unlinkat(int at, const char* path, int flags) noexcept {
  NEXT(unlinkat);
  return changed(call_on("unlink", at, path), "unlink", "", [&] { return real(at, path, flags); });
}
int remove(const char* path) noexcept {
  NEXT(remove);
  return changed(call_on("unlink", AT_FDCWD, path), "unlink", "", [&] { return real(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  NEXT(mkdir);
  return changed(call_on("mkdir", AT_FDCWD, path), "mkdir", "", [&] { return real(path, mode); });
}
int rmdir(const char* path) noexcept {
  NEXT(rmdir);
  return changed(call_on("rmdir", AT_FDCWD, path), "unlink", "", [&] { return real(path); });
}

#define STAT(name, Status)                                                                     \
  int name(const char* path, struct Status* status) noexcept {                                 \
    NEXT(name);                                                                                \
    return judge(call_on("stat", AT_FDCWD, path)) == Verdict::kFail ? -1 : real(path, status); \
  }
#define FSTAT(name, Status)                                                                      \
  int name(int descriptor, struct Status* status) noexcept {                                     \
    NEXT(name);                                                                                  \
    return judge(call_on("stat", descriptor)) == Verdict::kFail ? -1 : real(descriptor, status); \
  }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
STAT(statvfs, statvfs)
STAT(statvfs64, statvfs64)

DIR* opendir(const char* path) {
  NEXT(opendir);
  return judge(call_on("open", AT_FDCWD, path)) == Verdict::kFail ? nullptr : real(path);
}
struct dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return judge(call_on("list", ::dirfd(folder))) == Verdict::kFail ? nullptr : real(folder);
}
struct dirent64* readdir64(DIR* folder) {
  NEXT(readdir64);
  return judge(call_on("list", ::dirfd(folder))) == Verdict::kFail ? nullptr : real(folder);
}

int flock(int descriptor, int operation) noexcept {
  NEXT(flock);
  return judge(call_on("flock", descriptor)) == Verdict::kFail ? -1 : real(descriptor, operation);
}

// The kernel's clock does not jump with the process's.
int futimens(int descriptor, const struct timespec times[2]) noexcept {
  NEXT(futimens);
  if (judge(call_on("utime", descriptor)) == Verdict::kFail) return -1;
  if (times != nullptr || faults::clock_offset() == 0) return real(descriptor, times);
  struct timespec now[2];
  ::clock_gettime(CLOCK_REALTIME, &now[0]);
  now[1] = now[0];
  return real(descriptor, now);
}

int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  NEXT(clock_gettime);
  const int result = real(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    time->tv_sec += faults::clock_offset();
  return result;
}
int gettimeofday(struct timeval* __restrict time, void* __restrict zone) noexcept {
  NEXT(gettimeofday);
  const int result = real(time, zone);
  if (result == 0) time->tv_sec += faults::clock_offset();
  return result;
}
time_t time(time_t* where) noexcept {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (where != nullptr) *where = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
// NOLINTEND(cert-dcl37-c,cert-dcl51-cpp,bugprone-reserved-identifier,cppcoreguidelines-macro-usage)
