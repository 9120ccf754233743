// SPDX-License-Identifier: Apache-2.0
//
// The last action of each rank of a node, in shared memory: one row per rank, written only by that rank, without locks
// or system calls, and read by the others at any time. Uses no MPI. Invariant: a row can be read consistently even
// while its writer is suspended during a write: each note is written to the inactive half and then published.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

/// State of a rank's last action.
enum class RankState : std::uint32_t { kNothing, kStarted, kWaiting, kFinished, kWorking };

/// A rank's last action. Trivially copyable: it is also sent in messages. Texts are null-terminated and truncated.
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

/// Progress of a rank's hang report about an operation that timed out.
enum class Lateness : std::uint32_t { kNone, kLate, kSpeaks };

/// One rank's row. Lives in shared memory; the constructor makes it empty.
class StatusRow {
 public:
  static constexpr int kCommunicators = 16;

  /// Called by one thread of the row's rank at a time.
  void write(const StatusNote& note) noexcept;
  /// The last complete note.
  [[nodiscard]] StatusNote read() const noexcept;

  /// A slot that counts the collectives of a communicator; -1 when all are in use. `id` is not 0.
  int open(std::uint64_t id) noexcept;
  void close(int place) noexcept;
  void set_count(int place, std::uint64_t collectives) noexcept {
    counts_[static_cast<std::size_t>(place)].collectives.store(collectives, std::memory_order_release);
  }
  /// Collectives that the rank has started on a communicator; -1 when they are not counted.
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

/// The current time for notes (CLOCK_MONOTONIC).
[[nodiscard]] std::int64_t monotonic_ns() noexcept;

}  // namespace convoy
