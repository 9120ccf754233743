// SPDX-License-Identifier: Apache-2.0
//
// The text of the hang report about an operation that timed out: which ranks have not arrived, what each did last, and
// the remedy. A pure function of what is known about all ranks; no MPI. Invariant: every report names a rank, a host or
// a cause outside of the program, and says what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/base/process_state.h"
#include "parallel/watchdog/status_board.h"

namespace convoy {

/// The operation, on the rank that reports it.
struct LateOperation {
  std::string label;               ///< "all_reduce 'step loss' (collective 4 on communicator 'world' of 2 ranks)"
  std::uint64_t communicator = 0;  ///< id on the status board
  std::vector<int> members;        ///< of the communicator, as world ranks
  std::uint64_t collective = 0;    ///< sequence number; 0: a message, or unknown
  int peer = -1;                   ///< of a message: the other's world rank
  double waited = 0;               ///< seconds
};

/// The known state of one rank of the world.
struct RankStatus {
  int world_rank = 0;
  std::string host;
  std::int64_t pid = 0;
  bool heard = false;  ///< no rank of its host answered: only the above is known
  ProcessState state = ProcessState::kUnknown;
  StatusNote note;
  double age = 0;           ///< seconds since the note
  std::int64_t count = -1;  ///< collectives that it started on the operation's communicator; -1: not counted there
};

/// `ranks`: all of the world in their order, with this one, `world_rank`.
[[nodiscard]] std::string hang_report(const LateOperation& operation, const std::vector<RankStatus>& ranks,
                                      int world_rank);

}  // namespace convoy
