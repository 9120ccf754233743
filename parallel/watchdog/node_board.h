// SPDX-License-Identifier: Apache-2.0
//
// The status board of one node, in an MPI shared-memory window, and the constant facts about all ranks of the world:
// host, process, node. Private to parallel/. Without shared windows each rank is treated as a node, and reports have
// less detail. Invariant: every rank of the world has the same facts.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/base/process_state.h"
#include "parallel/watchdog/status_board.h"

namespace convoy {

/// Of one rank; plain bytes.
struct RankFacts {
  std::array<char, 64> host{};  ///< null-terminated
  ProcessId process;
  std::int64_t node = 0;  ///< world rank of the first rank of its node
};

class NodeBoard {
 public:
  /// `node`: the ranks that share memory, in the order of the world. Collective over the world.
  NodeBoard(MPI_Comm node, const std::string& host);
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;
  /// Frees the window; collective over the node. Otherwise the memory stays until the process ends.
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
