// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks, from which communicators are created. Copies share one MPI communicator, which is freed with the
// last copy. Creation and release are collective.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/communicator.h"

namespace convoy {

class RankGroup {
 public:
  struct Handle;  // of MPI
  RankGroup(std::shared_ptr<const Handle> handle, int rank, int size)
      : handle_(std::move(handle)), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// A new communicator of all ranks of the group. `timeout` in seconds. Collective.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(double timeout, const std::string& name = "world") const;
  /// One communicator per color, ranks ordered by key, then by rank (MPI_Comm_split). Null for a negative color.
  /// Collective.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, double timeout, const std::string& name) const;
  /// The group of the first `ranks` ranks; an empty group (rank -1, size 0) on the others. Collective.
  [[nodiscard]] RankGroup first(int ranks) const;

 private:
  std::shared_ptr<const Handle> handle_;
  int rank_;
  int size_;
};

/// All ranks of the running MPI program.
[[nodiscard]] RankGroup world_group();

/// This rank alone. Not collective.
[[nodiscard]] RankGroup self_group();

}  // namespace convoy
