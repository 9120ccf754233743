// SPDX-License-Identifier: Apache-2.0
//
// Relies on nlohmann's JSON for the content. Invariant: the file is created atomically, by link() from a temporary
// name. To remove it, a process holds a RemovalGuard, renames it and verifies its token.
#include "io/files/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <utility>

#include "io/files/atomic_file.h"
#include "io/files/lock_guard.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::chrono::milliseconds kBeat{1000};
constexpr std::chrono::milliseconds kGuardLimit{2000};
constexpr int kLooksInSilence = 15;  // a look counts when so much of the time to stale has gone by since the last one
constexpr int kAway = 5;             // times that: the observer was away
constexpr int kFreshLooks = 3;       // that count, one soon after the other, before a lock is stale

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

std::string owner_text(const LockOwner& owner) {
  const ProcessIdentity& p = owner.process;
  return Json{{"host", p.host},
              {"pid", p.pid},
              {"start_time", p.start_time},
              {"pid_namespace", p.pid_namespace},
              {"boot_id", p.boot_id},
              {"note", owner.note},
              {"token", owner.token}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// The owner in a lock file's text; the token is empty when the text cannot be parsed.
LockOwner parse_owner(const std::string& text) {
  LockOwner owner;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return owner;
  try {
    owner.process = {json.at("host"), json.at("boot_id"), json.at("pid_namespace"), json.at("pid"),
                     json.at("start_time")};
    owner.note = json.at("note");
    owner.token = json.at("token");
  } catch (const Json::exception&) {
    return {};
  }
  return owner;
}

// Renames the file unless `to` exists. File systems without hard links use renameat2().
bool put_in_place(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return true;
  }
  const int reason = errno;
  struct stat status {};  // the answer to a link() on NFS may have been lost
  if (::stat(from.c_str(), &status) == 0 && status.st_nlink == 2) {
    ::unlink(from.c_str());
    return true;
  }
  if (reason == EEXIST) return false;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  fail_io("cannot make the lock {}: {}", to, std::strerror(reason));
}

}  // namespace

std::string LockOwner::to_string() const {
  if (token.empty()) return "somebody unknown";
  return fmt::format("{}, pid {}", process.host, process.pid);
}

struct LockSight {
  bool exists = false;
  std::string content;
  std::string heartbeat;

  static LockSight at(const std::string& path) {
    LockSight sight;
    // Opened each time: NFS revalidates its cache on open().
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      sight.exists = errno != ENOENT;
      return sight;
    }
    sight.exists = true;
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count > 0) sight.content.assign(buffer.data(), static_cast<std::size_t>(count));
    struct stat status {};
    if (::fstat(descriptor, &status) == 0) {
      sight.heartbeat = fmt::format("{} {}.{:09d} ", status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    }
    ::close(descriptor);
    sight.heartbeat += sight.content;
    return sight;
  }
};

LockFile::LockFile(std::string path, std::string token, int descriptor, OnLost on_lost)
    : path_(std::move(path)), token_(std::move(token)), descriptor_(descriptor), on_lost_(std::move(on_lost)) {
  thread_ = std::thread([this] { beat(); });
}

LockFile::~LockFile() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  ::close(descriptor_);
  const RemovalGuard guard(path_, kGuardLimit);
  // Without the guard the file stays: it is stale once this process has ended.
  if (guard.held() && is_own()) ::unlink(path_.c_str());
}

bool LockFile::is_own() const { return parse_owner(LockSight::at(path_).content).token == token_; }

void LockFile::beat() {
  int misses = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    ::futimens(descriptor_, nullptr);
    const auto sight = LockSight::at(path_);
    const std::string token = parse_owner(sight.content).token;
    // Another process may have renamed it by mistake and restores it at once; an unreadable file (the server does not
    // respond) proves nothing.
    const bool gone = !sight.exists || (!token.empty() && token != token_);
    misses = gone ? misses + 1 : 0;
    if (misses >= 3) {
      lost_ = true;
      const std::string why = sight.exists
                                  ? fmt::format("{} is now held by {}", path_, parse_owner(sight.content).to_string())
                                  : fmt::format("{} has been removed", path_);
      lock.unlock();
      if (on_lost_) on_lost_(why);
      return;
    }
    wake_.wait_for(lock, misses > 0 ? std::chrono::milliseconds(50) : kBeat, [this] { return stop_; });
  }
}

LockAttempt::LockAttempt(std::string path, std::string note, std::chrono::milliseconds stale_after, Clock clock)
    : path_(std::move(path)), note_(std::move(note)), stale_after_(stale_after), clock_(std::move(clock)) {}

// A look at the file, and what it adds to the silence of the heartbeat.
LockSight LockAttempt::see() {
  const auto before = clock_();
  LockSight sight = LockSight::at(path_);
  const auto after = clock_();
  const auto between = stale_after_ / kLooksInSilence;
  const auto gap = before - looked_;
  if (sight.heartbeat != heartbeat_) {
    heartbeat_ = sight.heartbeat;
    silence_ = {};
    looks_ = 0;
    looked_ = after;
  } else if (after - looked_ > kAway * between) {  // suspended, or blocked by a file server
    silence_ += std::min<std::chrono::steady_clock::duration>(gap, between);
    looks_ = 0;
    looked_ = after;
  } else if (gap >= between) {
    silence_ += gap;
    ++looks_;
    looked_ = after;
  }
  return sight;
}

std::optional<LockOwner> LockAttempt::look() {
  const LockSight sight = see();
  holder_ = parse_owner(sight.content);
  if (!sight.exists || is_stale()) return std::nullopt;
  return holder_;
}

std::unique_ptr<LockFile> LockAttempt::poll(LockFile::OnLost on_lost) {
  for (int round = 0; round < 3; ++round) {
    const LockSight sight = see();
    if (!sight.exists) {
      if (auto lock = create(on_lost)) return lock;
      continue;
    }
    holder_ = parse_owner(sight.content);
    if (!is_stale() || !remove_stale(sight)) return nullptr;
  }
  return nullptr;
}

std::unique_ptr<LockFile> LockAttempt::create(LockFile::OnLost& on_lost) const {
  const LockOwner owner{this_process(), random_token(), note_};
  const std::string temporary = fmt::format("{}.{}{}", path_, owner.token, kTemporarySuffix);
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_io("cannot make the lock {}: {}", path_, std::strerror(errno));
  bool placed = false;
  try {
    const std::string text = owner_text(owner);
    write_all(descriptor, std::as_bytes(std::span(text)), temporary);
    if (::fsync(descriptor) != 0) fail_io("cannot write {}: {}", temporary, std::strerror(errno));
    placed = put_in_place(temporary, path_);
  } catch (...) {
    ::close(descriptor);
    ::unlink(temporary.c_str());
    throw;
  }
  if (!placed) {
    ::close(descriptor);
    ::unlink(temporary.c_str());
    return nullptr;
  }
  return std::unique_ptr<LockFile>(new LockFile(path_, owner.token, descriptor, std::move(on_lost)));
}

bool LockAttempt::is_stale() const {
  switch (holder_.token.empty() ? Liveness::kUnknown : liveness(holder_.process)) {
    case Liveness::kEnded: return true;
    case Liveness::kRuns: return false;  // a stopped process may continue and write
    case Liveness::kUnknown: break;
  }
  return silence_ >= stale_after_ && looks_ >= kFreshLooks;
}

// Renames the file and verifies it: if another process has acquired the lock meanwhile, the file is restored.
bool LockAttempt::remove_stale(const LockSight& sight) const {
  const RemovalGuard guard(path_, kGuardLimit);
  if (!guard.held() || LockSight::at(path_).heartbeat != sight.heartbeat) return false;
  const std::string aside = fmt::format("{}.{}{}", path_, random_token(), kTemporarySuffix);
  if (::rename(path_.c_str(), aside.c_str()) != 0) return false;
  if (LockSight::at(aside).content != sight.content) {
    try {
      (void)put_in_place(aside, path_);
    } catch (const Error&) {
    }
    ::unlink(aside.c_str());
    return false;
  }
  ::unlink(aside.c_str());
  return true;
}

}  // namespace convoy
