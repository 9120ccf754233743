// SPDX-License-Identifier: Apache-2.0
//
// This process's row of the status board: operations and communicators write what they do into it. Private to
// parallel/. Safe from several threads. Invariant: does nothing while no row is attached, that is without a World.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/watchdog/hang_report.h"
#include "parallel/watchdog/status_board.h"

namespace convoy {

/// What an operation is called in reports.
struct OperationName {
  std::string kind;          ///< "all_reduce", "receive from rank 2"
  std::uint64_t number = 0;  ///< which of the communicator's collectives, or of its messages, from 1; 0: of no count
  std::string what;          ///< "gradient bucket 3"
  bool message = false;      ///< a send or receive, not a collective
  int peer = -1;             ///< of a message: the other rank, in the communicator
  int tag = -1;              ///< of a message

  /// "collective 1204", "message 3, tag 1", "first contact"
  [[nodiscard]] std::string number_text() const;
};

/// A communicator in the row: which ranks it has, and how many collectives this one has started on it. Ranks that make
/// the same communicators in the same order give them the same ids, without asking each other.
class WatchedCommunicator {
 public:
  /// `members`: their world ranks, in the order of the communicator.
  WatchedCommunicator(std::string name, std::vector<int> members);
  ~WatchedCommunicator();
  WatchedCommunicator(const WatchedCommunicator&) = delete;
  WatchedCommunicator& operator=(const WatchedCommunicator&) = delete;

  /// What this rank does with an operation of it; kStarted comes before the first call that others can see.
  void note(RankState state, const OperationName& operation) const noexcept;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// An operation of it as a report needs it.
  [[nodiscard]] LateOperation late(const OperationName& operation, std::string label, double waited) const;

 private:
  std::string name_;
  std::vector<int> members_;
  std::uint64_t id_;
  int place_ = -1;  // in the row's counts; -1: none
};

/// From now on `row` is this process's; null: it has none any more. Who makes the row's memory calls this.
void attach_status(StatusRow* row) noexcept;

}  // namespace convoy
