// SPDX-License-Identifier: Apache-2.0
//
// A lock that a folder shared by machines can hold: a file with its owner's identity and a heartbeat, its time of
// modification, renewed every second. Relies on link() being atomic, also on NFS. Invariant: at most one owner at a
// time, as long as a heartbeat that stands still for kStaleSeconds means that its owner has ended; an owner that was
// only stopped for so long learns within a second of going on that the lock is no longer its own, and must end.
//
// Stale is a lock whose owner's process has certainly ended (process_identity.h), or of which nothing can be said and
// whose heartbeat stood still for kStaleSeconds by the observer's own clock: clocks of machines are never compared.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "io/files/process_identity.h"

namespace convoy {

struct LockOwner {
  ProcessIdentity process;
  std::string token;  ///< random, of this one acquisition
  std::string note;   ///< whatever the owner wants others to read

  /// "HOST, pid 123", or what is known instead.
  [[nodiscard]] std::string to_string() const;
};

/// What is at the path of a lock at a moment.
struct LockSight;

/// A lock that is held. Its end releases it.
class LockFile {
 public:
  /// Called once, by the heartbeat's thread, with the reason.
  using OnLost = std::function<void(const std::string& why)>;

  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Whether the file is no longer this owner's: it was removed or taken over.
  [[nodiscard]] bool lost() const { return lost_; }
  [[nodiscard]] const std::string& token() const { return token_; }

 private:
  friend class LockAttempt;
  LockFile(std::string path, std::string token, int descriptor, OnLost on_lost);
  void beat();
  [[nodiscard]] bool is_own() const;

  const std::string path_;
  const std::string token_;
  const int descriptor_;
  const OnLost on_lost_;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

/// Tries for a lock until poll() returns it; keeps what it has seen of the owner's heartbeat in between.
class LockAttempt {
 public:
  static constexpr std::chrono::seconds kStaleSeconds{15};

  /// The folder of `path` must exist. note: for others to read, once the lock is held.
  explicit LockAttempt(std::string path, std::string note = "", std::chrono::milliseconds stale_after = kStaleSeconds);

  /// The lock, or null while another has it. Call it every second or more often. Throws when the file cannot be made.
  [[nodiscard]] std::unique_ptr<LockFile> poll(LockFile::OnLost on_lost = {});

  /// The owner, without trying to lock; nothing when there is none, or a stale one.
  [[nodiscard]] std::optional<LockOwner> look();

  /// Who had it at the last poll() or look().
  [[nodiscard]] const LockOwner& holder() const { return holder_; }

 private:
  [[nodiscard]] std::unique_ptr<LockFile> create(LockFile::OnLost& on_lost) const;
  [[nodiscard]] bool is_stale(const LockSight& sight);
  [[nodiscard]] bool remove_stale(const LockSight& sight) const;

  std::string path_, note_;
  std::chrono::milliseconds stale_after_;
  LockOwner holder_;
  std::string heartbeat_;  // content and time of modification when last looked at
  std::chrono::steady_clock::time_point heartbeat_since_;
};

}  // namespace convoy
