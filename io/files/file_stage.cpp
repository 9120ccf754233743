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
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "io/files/own_file.h"
#include "layers/base/error.h"
#include "layers/base/file_status.h"
#include "layers/base/file_text.h"
#include "layers/base/format_bytes.h"
#include "layers/base/random.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{8} << 20;
constexpr std::int64_t kSyncBytes = std::int64_t{256} << 20;  // a sync at the end alone would take minutes
constexpr std::chrono::milliseconds kLook{20};                // between attempts to lock
// In the folder of the copies.
constexpr const char* kLock = "/.convoy-lock";
constexpr const char* kList = "/.convoy-checksums";
constexpr const char* kPart = "/.convoy-part-";
constexpr std::string_view kListHead = "convoy-stage 1";
constexpr std::size_t kChecksumLine = 9;  // characters of one

bool same(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

std::uint32_t checksum_of(const std::byte* bytes, std::size_t count, std::uint32_t before) {
  return crc32c({reinterpret_cast<const char*>(bytes), count}, before);
}

// Named after the first file, with a hash that distinguishes stages of files of the same name.
std::string set_name(const std::string& first, std::uint64_t key) { return fmt::format("{}-{:016x}", first, key); }

// Whether a folder may be that of a set, by its name.
bool may_be_set(const std::string& name) {
  const auto dash = name.rfind('-');
  return dash != std::string::npos && are_unguessable_digits(std::string_view(name).substr(dash + 1));
}

void make_folder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return;
  const int reason = errno;
  if (reason == EEXIST && fs::is_directory(status_of(path))) return;
  fail_system(reason, "cannot create the folder {}: {} (name one that may be written, below a folder that is there)",
              path, reason == EEXIST ? "a file is called that" : std::strerror(reason));
}

// Others could put a folder of their own in the place of one in it.
void refuse_open_folder(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) == 0 || (status.st_mode & S_ISVTX) != 0) return;
  fail_usage("{}: every user may rename what lies in it (chmod +t {}, or name another place)", path, path);
}

// Unfinished copies in the folder of a set.
void remove_parts_in(const std::string& folder) {
  std::vector<fs::path> parts;
  std::error_code error;
  const std::string_view start(kPart + 1);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(start)) parts.push_back(at->path());
  }
  for (const fs::path& part : parts) ::unlink(part.c_str());
}

}  // namespace

FileStage::FileStage(std::string stage_dir, std::vector<std::string> files) : stage_dir_(std::move(stage_dir)) {
  std::uint64_t key = mix64(::geteuid());
  for (std::string& file : files) {
    Source source{std::move(file), "", {}, {}};
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
  done_ = synced_ = 0;
  checksum_ = 0;
}

// Private to the user: the source may not be readable for others, and what others write is not to be read.
// false: errno says why.
bool FileStage::own_folder() const {
  const int descriptor = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct stat status {};
  int reason = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (reason == 0 && (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)) reason = EPERM;
  ::close(descriptor);
  errno = reason;
  return reason == 0;
}

// The copy of this size, open for reading; -1 when there is none.
int FileStage::open_copy(const Source& source) const {
  const int descriptor = open_own_file(copy_of(source), O_RDONLY);
  if (descriptor < 0) return -1;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && status.st_size == source.status.st_size) return descriptor;
  ::close(descriptor);
  return -1;
}

// The list: a head, a line for each file, in order, with its checksum or "-", and the checksum of these lines.
void FileStage::read_list() {
  for (Source& source : sources_) source.checksum.reset();
  if (!own_folder()) return;
  const int descriptor = open_own_file(folder_ + kList, O_RDONLY);
  if (descriptor < 0) return;
  ::close(descriptor);
  const std::string text = file_text(folder_ + kList).value_or("");
  const std::size_t end = text.size() - std::min(text.size(), kChecksumLine);
  if (text.substr(end) != fmt::format("{:08x}\n", crc32c(std::string_view(text).substr(0, end)))) return;
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kListHead) return;
  for (Source& source : sources_) {
    if (!std::getline(lines, line)) return;
    const int copy = line == "-" ? -1 : open_copy(source);
    if (copy < 0) continue;
    ::close(copy);
    source.checksum = static_cast<std::uint32_t>(std::stoul(line, nullptr, 16));
  }
}

void FileStage::write_list() const {
  std::string text = fmt::format("{}\n", kListHead);
  for (const Source& source : sources_) text += source.checksum ? fmt::format("{:08x}\n", *source.checksum) : "-\n";
  text += fmt::format("{:08x}\n", crc32c(text));
  write_file_atomically(folder_ + kList, std::as_bytes(std::span(text)));
}

bool FileStage::all_listed() const {
  return std::all_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return source.checksum.has_value(); });
}

void FileStage::make_folders() const {
  make_folder(stage_dir_, 0755);
  refuse_open_folder(stage_dir_);
  make_folder(folder_, 0700);
  if (!own_folder()) {
    if (!is_input_fault(errno)) fail_system(errno, "cannot open {}: {}", folder_, std::strerror(errno));
    fail_usage("{} is not a folder of this user alone (remove it, or name another place)", folder_);
  }
}

bool FileStage::lock(Clock::time_point until) {
  if (lock_ < 0) {
    const std::string path = folder_ + kLock;
    lock_ = open_own_file(path, O_RDWR | O_CREAT, 0600);
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

// Removes unfinished copies of processes that have ended, of this set (its lock is held) and of others.
void FileStage::remove_left() const {
  remove_parts_in(folder_);
  std::vector<std::string> sets;
  std::error_code error;
  for (fs::directory_iterator at(stage_dir_, error), end; !error && at != end; at.increment(error)) {
    if (may_be_set(at->path().filename().string())) sets.push_back(at->path().string());
  }
  for (const std::string& set : sets) {
    const int descriptor = set == folder_ ? -1 : open_own_file(set + kLock, O_RDWR);
    if (descriptor < 0) continue;  // no set, or another user's
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) remove_parts_in(set);
    ::close(descriptor);
  }
}

void FileStage::check_room() const {
  std::int64_t needed = 0;
  for (const Source& source : sources_) needed += source.checksum ? 0 : source.status.st_size;
  struct statvfs space {};
  if (::statvfs(folder_.c_str(), &space) != 0) return;  // the write reports the error
  const std::uintmax_t free = std::uintmax_t{space.f_bavail} * space.f_frsize;
  if (static_cast<std::uintmax_t>(needed) <= free) return;
  fail_system(ENOSPC, "{} needs {} more and {} are free there (make room, or name another place)", folder_,
              format_bytes(static_cast<std::uintmax_t>(needed)), format_bytes(free));
}

void FileStage::open(const Source& source) {
  close();
  from_ = ::open(source.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (from_ < 0) fail_system(errno, "cannot read {}: {}", source.path, std::strerror(errno));
  part_ = folder_ + kPart + unguessable_digits();
  to_ = create_new_file(part_, 0600);
  if (to_ < 0) fail_system(errno, "cannot write {}: {} (name another place)", part_, std::strerror(errno));
  buffer_.resize(kPiece);
}

void FileStage::cannot_write(int reason) {
  if (reason == ENOSPC || reason == EDQUOT) {
    ::unlink(part_.c_str());
    if (::ftruncate(to_, 0) == 0) check_room();
  }
  fail_system(reason, "cannot write {}: {} (make room, or name another place)", part_, std::strerror(reason));
}

void FileStage::write(const std::byte* bytes, std::size_t count) {
  if (const int reason = pwrite_all(to_, std::span(bytes, count), done_); reason != 0) cannot_write(reason);
  checksum_ = checksum_of(bytes, count, checksum_);
  done_ += static_cast<std::int64_t>(count);
  if (done_ - synced_ < kSyncBytes) return;
  if (::fdatasync(to_) != 0) cannot_write(errno);
  synced_ = done_;
}

// True when the file is complete, on the disk, renamed and in the list.
bool FileStage::copy_until(Source& source, Clock::time_point until) {
  if (to_ < 0) open(source);
  while (true) {
    const ssize_t count = ::pread(from_, buffer_.data(), buffer_.size(), done_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(errno, "cannot read {}: {}", source.path, std::strerror(errno));
    if (count == 0) break;
    write(buffer_.data(), static_cast<std::size_t>(count));
    if (Clock::now() >= until) return false;
  }
  struct stat now {};
  if (::fstat(from_, &now) != 0 || !same(now, source.status) || done_ != source.status.st_size) {
    fail_busy("{} has changed while it was copied (start again when it is finished)", source.path);
  }
  if (::fsync(to_) != 0) cannot_write(errno);
  const std::string path = copy_of(source);
  const int closed = ::close(std::exchange(to_, -1));
  if (closed != 0 || ::rename(part_.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(part_.c_str());
    fail_system(reason, "cannot write {}: {} (make room, or name another place)", path, std::strerror(reason));
  }
  copied_ += done_;
  source.checksum = checksum_;
  close();
  write_list();
  return true;
}

// Reads the copy of another process.
FileStage::Verdict FileStage::verify_until(const Source& source, Clock::time_point until) {
  if (from_ < 0) from_ = open_copy(source);
  buffer_.resize(kPiece);
  while (from_ >= 0) {
    const ssize_t count = ::pread(from_, buffer_.data(), buffer_.size(), done_);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // an error, too: the copy is of no use
    checksum_ = checksum_of(buffer_.data(), static_cast<std::size_t>(count), checksum_);
    done_ += count;
    if (Clock::now() >= until) return Verdict::kMore;
  }
  const bool holds = from_ >= 0 && done_ == source.status.st_size && checksum_ == source.checksum;
  close();
  return holds ? Verdict::kHolds : Verdict::kDamaged;
}

// True when the file is there and verified, or copied by this process.
bool FileStage::finish_until(Source& source, Clock::time_point until) {
  if (to_ < 0 && source.checksum) {
    const Verdict verdict = verify_until(source, until);
    if (verdict != Verdict::kDamaged) return verdict == Verdict::kHolds;
    source.checksum.reset();
    if (!locked_) return false;  // another process may be replacing it
    ++damaged_;
    check_room();
  }
  return copy_until(source, until);
}

bool FileStage::advance(std::chrono::duration<double> time) {
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  if (!std::exchange(looked_, true)) read_list();
  if (!locked_ && !all_listed()) {
    make_folders();
    if (!lock(until)) return false;
    locked_ = true;
    read_list();
    remove_left();
    check_room();
  }
  for (; next_ < sources_.size(); ++next_) {
    if (!finish_until(sources_[next_], until)) return false;
  }
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  return true;
}

}  // namespace convoy
