// SPDX-License-Identifier: Apache-2.0
//
// What each rank of a node did last, in memory that all of them share: a row for each rank, written by that rank alone
// without locks or calls of the system, read by the others at any time. Knows no MPI. Invariant: a row can be read
// whole also while its writer is stopped in the middle of a write: a note goes into the half that is not read, and is
// published after it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

/// How a rank stands to what it did last.
enum class RankState : std::uint32_t { kNothing, kStarted, kWaiting, kFinished, kWorking };

/// What a rank did last. Plain bytes: it also travels in messages. Texts end with a zero and are cut to fit.
struct StatusNote {
  std::int64_t time_ns = 0;  ///< CLOCK_MONOTONIC of the node
  std::uint64_t number = 0;  ///< of the collective or message; 0: none
  RankState state = RankState::kNothing;
  std::uint32_t message = 0;            ///< 1: a send or receive, 0: a collective
  std::array<char, 32> kind{};          ///< "all_reduce"; empty for work between operations
  std::array<char, 64> what{};          ///< "gradient bucket 3", "reading data"
  std::array<char, 32> communicator{};  ///< "replicas"

  void set(std::string_view its_kind, std::string_view its_what, std::string_view its_communicator) noexcept;
  /// "all_reduce 'step loss' (collective 311 on 'world')", or the work alone.
  [[nodiscard]] std::string to_string() const;
};

/// How far a rank is with the hang report of an operation that timed out.
enum class Lateness : std::uint32_t { kNone, kLate, kSpeaks };

/// One rank's row. Lives in shared memory; the constructor makes it empty.
class StatusRow {
 public:
  static constexpr int kCommunicators = 16;

  /// Called by one thread of the row's rank at a time.
  void write(const StatusNote& note) noexcept;
  /// The last whole note.
  [[nodiscard]] StatusNote read() const noexcept;

  /// A place to count the collectives of a communicator; -1 when all are taken. id is not 0.
  int open(std::uint64_t id) noexcept;
  void close(int place) noexcept;
  void set_count(int place, std::uint64_t collectives) noexcept {
    counts_[static_cast<std::size_t>(place)].collectives.store(collectives, std::memory_order_release);
  }
  /// Collectives that the rank has started on a communicator; -1 when it does not count them.
  [[nodiscard]] std::int64_t count(std::uint64_t id) const noexcept;

  void set_lateness(Lateness lateness) noexcept { lateness_.store(lateness); }
  [[nodiscard]] Lateness lateness() const noexcept { return lateness_.load(); }

 private:
  static constexpr std::size_t kWords = sizeof(StatusNote) / sizeof(std::uint64_t);
  static_assert(sizeof(StatusNote) % sizeof(std::uint64_t) == 0);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<Lateness>::is_always_lock_free);
  struct Count {
    std::atomic<std::uint64_t> id{0};  // 0: free
    std::atomic<std::uint64_t> collectives{0};
  };

  alignas(64) std::atomic<std::uint64_t> version_{0};  // the note is in half version_ % 2
  std::array<std::array<std::atomic<std::uint64_t>, kWords>, 2> halves_{};
  std::array<Count, kCommunicators> counts_{};
  std::atomic<Lateness> lateness_{Lateness::kNone};
};

/// Now, as notes have it.
[[nodiscard]] std::int64_t monotonic_ns() noexcept;

}  // namespace convoy
