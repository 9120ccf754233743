// SPDX-License-Identifier: Apache-2.0
//
// This process's row of the status board, updated by operations and communicators. Private to parallel/. Thread-safe.
// Invariant: no effect while no row is attached, that is, without a World.
#pragma once

#include <cstdint>
#include <string>
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

/// A communicator in the row: its ranks, and the number of collectives that this rank has started on it. Ranks that
/// create the same communicators in the same order give them the same ids without communication.
class WatchedCommunicator {
 public:
  /// `members`: their world ranks, in the order of the communicator.
  WatchedCommunicator(std::string name, std::vector<int> members);
  ~WatchedCommunicator();
  WatchedCommunicator(const WatchedCommunicator&) = delete;
  WatchedCommunicator& operator=(const WatchedCommunicator&) = delete;

  /// Sets the state of an operation; kStarted is set before the first MPI call.
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

/// Attaches this process's row; null detaches it. Called by the owner of the memory.
void attach_status(StatusRow* row) noexcept;

}  // namespace convoy
