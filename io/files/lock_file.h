// SPDX-License-Identifier: Apache-2.0
//
// A lock file for folders that several machines share. It contains its owner's identity; its modification time is a
// heartbeat, renewed every second. Relies on link() being atomic, also on NFS.
//
// A lock is stale when its owner's process has certainly ended (process_identity.h), or when its state is unknown and
// the heartbeat has stopped for kStaleSeconds. The observer measures that time with its own clock: clocks of different
// machines are never compared. Time that the observer was suspended or blocked itself does not count, since the owner
// may have been too, and after it the heartbeat must stand still for several looks more.
//
// Invariant: there is at most one owner. An owner that was suspended for kStaleSeconds may lose the lock; it learns so
// within a second after it continues, and must end.
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
  std::string token;  ///< random, unique to this acquisition
  std::string note;   ///< text from the owner for other processes

  /// "HOST, pid 123", or as much of it as is known.
  [[nodiscard]] std::string to_string() const;
};

/// A snapshot of a lock file.
struct LockSight;

/// A lock that is held; the destructor releases it.
class LockFile {
 public:
  /// Called once, by the heartbeat's thread, with the reason.
  using OnLost = std::function<void(const std::string& why)>;

  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Whether the lock was lost: the file was removed, or another process took it over.
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

/// Acquires a lock by repeated calls of poll(); remembers the owner's heartbeat between calls.
class LockAttempt {
 public:
  static constexpr std::chrono::seconds kStaleSeconds{15};
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  /// The folder of `path` must exist. `note` is stored in the lock file for other processes.
  explicit LockAttempt(std::string path, std::string note = "", std::chrono::milliseconds stale_after = kStaleSeconds,
                       Clock clock = &std::chrono::steady_clock::now);

  /// The lock, or null while another process holds it. Call it at least once a second. Throws when the file cannot be
  /// created.
  [[nodiscard]] std::unique_ptr<LockFile> poll(LockFile::OnLost on_lost = {});

  /// The owner, without an attempt to lock; nothing when the lock is free or stale.
  [[nodiscard]] std::optional<LockOwner> look();

  /// The owner at the last poll() or look().
  [[nodiscard]] const LockOwner& holder() const { return holder_; }

 private:
  [[nodiscard]] std::unique_ptr<LockFile> create(LockFile::OnLost& on_lost) const;
  [[nodiscard]] LockSight see();
  [[nodiscard]] bool is_stale() const;
  [[nodiscard]] bool remove_stale(const LockSight& sight) const;

  std::string path_, note_;
  std::chrono::milliseconds stale_after_;
  Clock clock_;
  LockOwner holder_;
  std::string heartbeat_;                          // content and time of modification when last looked at
  std::chrono::steady_clock::time_point looked_;   // when the last look that counts ended
  std::chrono::steady_clock::duration silence_{};  // of the heartbeat, as far as it was watched
  int looks_ = 0;                                  // that count, since it changed or the observer was away
};

}  // namespace convoy
