// SPDX-License-Identifier: Apache-2.0
#include "io/files/file_stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>

#include "io/files/atomic_file.h"
#include "layers/base/error.h"
#include "layers/base/format_bytes.h"
#include "layers/base/random.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{8} << 20;
constexpr std::chrono::milliseconds kLook{20};  // between attempts to lock
constexpr const char* kLock = ".lock";
constexpr const char* kPart = ".part";

bool same(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Named after the first file, with a hash that distinguishes stages of files of the same name.
std::string set_name(const std::string& first, std::uint64_t key) { return fmt::format("{}-{:016x}", first, key); }

void make_folder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return;
  const int reason = errno;
  std::error_code ignored;
  if (reason == EEXIST && fs::is_directory(path, ignored)) return;
  fail_system(reason, "cannot create the folder {}: {} (name one that may be written, below a folder that is there)",
              path, reason == EEXIST ? "a file is called that" : std::strerror(reason));
}

}  // namespace

FileStage::FileStage(std::string stage_dir, std::vector<std::string> files) : stage_dir_(std::move(stage_dir)) {
  std::uint64_t key = mix64(::geteuid());
  for (std::string& file : files) {
    Source source{std::move(file), "", {}};
    source.name = fs::path(source.path).filename().string();
    if (::stat(source.path.c_str(), &source.status) != 0) {
      fail_system(errno, "cannot read {}: {}", source.path, std::strerror(errno));
    }
    const auto& time = source.status.st_mtim;
    key = random_key(key, fmt::format("{} {} {}.{}", fs::absolute(source.path).lexically_normal().string(),
                                      source.status.st_size, time.tv_sec, time.tv_nsec));
    bytes_ += source.status.st_size;
    sources_.push_back(std::move(source));
  }
  folder_ = (fs::path(stage_dir_) / set_name(sources_.front().name, key)).string();
  part_ = folder_ + kPart;
}

FileStage::~FileStage() {
  if (to_ >= 0) ::unlink(part_.c_str());
  close();
  if (lock_ >= 0) ::close(lock_);
}

void FileStage::close() {
  for (int* descriptor : {&from_, &to_}) {
    if (*descriptor >= 0) ::close(*descriptor);
    *descriptor = -1;
  }
}

bool FileStage::is_there(const Source& source) const {
  struct stat status {};
  const std::string path = folder_ + "/" + source.name;
  return ::lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
         status.st_size == source.status.st_size;
}

// Private to the user: the source may not be readable for others.
bool FileStage::own_folder() const {
  struct stat status {};
  return ::lstat(folder_.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

bool FileStage::all_there() const {
  return own_folder() &&
         std::all_of(sources_.begin(), sources_.end(), [&](const Source& source) { return is_there(source); });
}

void FileStage::make_folders() {
  make_folder(stage_dir_, 0777);
  make_folder(folder_, 0700);
  if (!own_folder()) {
    fail_usage("{} is not a folder of this user (remove it, or name another place)", folder_);
  }
}

bool FileStage::lock(Clock::time_point until) {
  if (lock_ < 0) {
    const std::string path = folder_ + kLock;
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_ < 0) fail_system(errno, "cannot write {}: {} (name another place)", path, std::strerror(errno));
  }
  while (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      fail_system(errno, "cannot lock {}{}: {} (name a place on a disk of the node)", folder_, kLock,
                  std::strerror(errno));
    }
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

// Removes unfinished copies of processes that have ended.
void FileStage::remove_left() const {
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator at(stage_dir_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == kPart) parts.push_back(at->path());
  }
  for (fs::path& part : parts) {
    const std::string path = part.string(), lock_path = part.replace_extension(kLock).string();
    if (path == part_) {
      ::unlink(path.c_str());  // this lock is held
      continue;
    }
    const int descriptor = ::open(lock_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) continue;  // not a temporary file, or another user's
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(descriptor);
  }
}

void FileStage::check_room() const {
  std::int64_t needed = 0;
  for (const Source& source : sources_) needed += is_there(source) ? 0 : source.status.st_size;
  struct statvfs space {};
  if (::statvfs(folder_.c_str(), &space) != 0) return;  // the write reports the error
  const std::uintmax_t free = std::uintmax_t{space.f_bavail} * space.f_frsize;
  if (static_cast<std::uintmax_t>(needed) <= free) return;
  fail_system(ENOSPC, "{} needs {} more and {} are free there (make room, or name another place)", folder_,
              format_bytes(static_cast<std::uintmax_t>(needed)), format_bytes(free));
}

void FileStage::open(const Source& source) {
  from_ = ::open(source.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (from_ < 0) fail_system(errno, "cannot read {}: {}", source.path, std::strerror(errno));
  to_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (to_ < 0) fail_system(errno, "cannot write {}: {} (name another place)", part_, std::strerror(errno));
  done_ = 0;
  buffer_.resize(kPiece);
}

void FileStage::write(const std::byte* bytes, std::size_t count) {
  const int reason = pwrite_all(to_, std::span(bytes, count), done_);
  if (reason == 0) return;
  if (reason == ENOSPC || reason == EDQUOT) {
    ::unlink(part_.c_str());
    if (::ftruncate(to_, 0) == 0) check_room();
  }
  fail_system(reason, "cannot write {}: {} (make room, or name another place)", part_, std::strerror(reason));
}

// True when the file is complete and renamed.
bool FileStage::copy_until(const Source& source, Clock::time_point until) {
  if (to_ < 0) open(source);
  while (true) {
    const ssize_t count = ::pread(from_, buffer_.data(), buffer_.size(), done_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "cannot read {}: {}", source.path, std::strerror(errno));
    if (count == 0) break;
    write(buffer_.data(), static_cast<std::size_t>(count));
    done_ += count;
    if (Clock::now() >= until) return false;
  }
  struct stat now {};
  if (::fstat(from_, &now) != 0 || !same(now, source.status) || done_ != source.status.st_size) {
    fail_busy("{} has changed while it was copied (start again when it is finished)", source.path);
  }
  const std::string path = folder_ + "/" + source.name;
  const int closed = ::close(std::exchange(to_, -1));
  if (closed != 0 || ::rename(part_.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(part_.c_str());
    fail_system(reason, "cannot write {}: {} (make room, or name another place)", path, std::strerror(reason));
  }
  close();
  copied_ += std::exchange(done_, 0);
  return true;
}

bool FileStage::advance(std::chrono::duration<double> time) {
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  if (to_ < 0 && next_ == 0) {
    if (all_there()) return true;
    make_folders();
    if (!lock(until)) return false;
    remove_left();
    check_room();
  }
  for (; next_ < sources_.size(); ++next_) {
    const Source& source = sources_[next_];
    if (to_ < 0 && is_there(source)) continue;
    if (!copy_until(source, until)) return false;
  }
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  return true;
}

}  // namespace convoy
