// SPDX-License-Identifier: Apache-2.0
//
// Finds the missing ranks when an operation times out: the waiting rank queries the other nodes over a separate MPI
// communicator, and ranks that wait as well answer for their node from its status board. Private to parallel/; owned by
// World. Invariants: without a timeout no message is sent; only threads that wait for an operation call MPI here; of
// several ranks that time out the lowest reports, and the others wait until the job is aborted.
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
  /// `node`: the ranks that share memory. Collective over the world.
  Watchdog(MPI_Comm node, const std::string& host);
  /// Does not free MPI objects: end() does.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Frees all MPI objects. Collective over the world.
  void end();

  /// The watchdog of the World; null without a World.
  [[nodiscard]] static Watchdog* current() noexcept;

  /// Answers queries of other ranks; called by threads that have waited for a while. Cheap.
  void serve();
  /// The report of an operation that timed out. Takes one to two seconds, and several more when a lower rank timed out
  /// as well: its report should have ended the job by then.
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

/// Throws the Error of an operation that timed out.
[[noreturn]] void fail_late(const LateOperation& operation);

}  // namespace convoy
