// SPDX-License-Identifier: Apache-2.0
//
// The status board of one node, in a window of memory that its ranks share, and what is known of all ranks of the world
// from the start: host, process, node. Private to parallel/. Relies on MPI's shared windows; where there is none, each
// rank is a node by itself, and reports are poorer. Invariant: every rank of the world has the same facts.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/base/process_state.h"
#include "parallel/watchdog/status_board.h"

namespace convoy {

/// Of one rank; plain bytes.
struct RankFacts {
  std::array<char, 64> host{};  ///< ends with a zero
  ProcessId process;
  std::int64_t node = 0;  ///< world rank of the first rank of its node
};

class NodeBoard {
 public:
  /// `node`: the ranks that share memory, in the order of the world. All ranks of the world make it together.
  NodeBoard(MPI_Comm node, const std::string& host);
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;
  /// Gives the window back; all ranks of the node call it. Without it the memory stays until the process ends.
  void free();

  [[nodiscard]] int world_rank() const { return world_rank_; }
  [[nodiscard]] const std::vector<RankFacts>& facts() const { return facts_; }
  /// World ranks whose rows are here, ascending.
  [[nodiscard]] const std::vector<int>& locals() const { return locals_; }
  /// The row of locals()[index].
  [[nodiscard]] StatusRow& row(std::size_t index) const { return *rows_[index]; }
  [[nodiscard]] StatusRow& own_row() const { return *own_; }

 private:
  void share(MPI_Comm node);

  int world_rank_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
  std::unique_ptr<StatusRow> private_row_;
  StatusRow* own_ = nullptr;
  std::vector<StatusRow*> rows_;
  std::vector<int> locals_;
  std::vector<RankFacts> facts_;
};

}  // namespace convoy
