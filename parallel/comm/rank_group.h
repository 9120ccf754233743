// SPDX-License-Identifier: Apache-2.0
//
// Some or all ranks of the world, and the communicators made from them: what a run needs to know of MPI. Copies share
// one underlying MPI communicator, which is freed with the last one; making and freeing are collective.
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace convoy {

class RankGroup {
 public:
  struct Handle;  // of MPI
  RankGroup(std::shared_ptr<const Handle> handle, int rank, int size)
      : handle_(std::move(handle)), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// A communicator of its own over all ranks of the group. `timeout` in seconds. Every rank of it calls this.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(double timeout, const std::string& name = "world") const;
  /// One communicator for each color, ranks ordered by key, then by their rank here. Every rank of the group calls it;
  /// with a negative color a rank joins none and gets nullptr.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, double timeout, const std::string& name) const;
  /// The first `ranks` ranks as a group of their own; without ranks (rank -1, size 0) on the others. Every rank calls
  /// it.
  [[nodiscard]] RankGroup first(int ranks) const;

 private:
  std::shared_ptr<const Handle> handle_;
  int rank_;
  int size_;
};

/// All ranks of the running MPI program.
[[nodiscard]] RankGroup world_group();

}  // namespace convoy
