// SPDX-License-Identifier: Apache-2.0
//
// Finds out which rank is missing when an operation times out: the waiting rank asks the other nodes over a separate
// MPI communicator, and ranks that wait themselves answer for their whole node from its status board. Private to
// parallel/; World makes it. Invariants: without a timeout no message is sent; only threads that wait for an operation
// call MPI here; of several ranks that time out the lowest reports, while the others wait to be ended.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/watchdog/hang_report.h"
#include "parallel/watchdog/node_board.h"

namespace convoy {

class Watchdog {
 public:
  /// `node`: the ranks that share memory. All ranks of the world make it together.
  Watchdog(MPI_Comm node, const std::string& host);
  /// Leaves to MPI what end() did not give back.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Gives everything back in order; all ranks call it together.
  void end();

  /// The World's; null without one.
  [[nodiscard]] static Watchdog* current() noexcept;

  /// For threads that have waited for a while: answers what others ask. Cheap when called often.
  void serve();
  /// The report of an operation whose deadline has passed. Takes a second or two; several seconds more when a lower
  /// rank timed out, too: its report should have ended the job by then.
  [[nodiscard]] std::string report(const LateOperation& operation);

  [[nodiscard]] const NodeBoard& board() const { return board_; }

 private:
  struct Query;
  struct AnswerRow;
  struct Outgoing;

  void ask_nodes(const Query& query, bool all_ranks);
  void tell(const Query& query);
  void exchange();
  void answer(const Query& query, int asker);
  void inquire(std::uint64_t communicator);
  void read_own_node(std::uint64_t communicator);
  void send(int world_rank, int tag, const void* data, std::size_t bytes);
  [[nodiscard]] AnswerRow describe(std::size_t local, std::uint64_t communicator) const;
  void learn(const AnswerRow& row);
  void note_late(int world_rank, bool speaks);

  static constexpr int kNobody = std::numeric_limits<int>::max();

  NodeBoard board_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::mutex mutex_;  // of all below, and of all calls on comm_
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<RankStatus> known_;  // of an inquiry that is under way
  std::uint64_t asked_ = 0;        // the communicator that it is about
  std::int64_t served_ns_ = 0;     // when serve() last looked
  int lowest_late_ = kNobody;      // of the other ranks
  bool spoken_ = false;            // by one of them
  std::int64_t others_ns_ = 0;     // when the two were last learnt
};

/// Throws the Error of an operation whose deadline has passed.
[[noreturn]] void fail_late(const LateOperation& operation);

}  // namespace convoy
