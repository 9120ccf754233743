// SPDX-License-Identifier: Apache-2.0
//
// One shared memory segment per rank of a communicator whose ranks are on one node; every rank maps all segments.
// Private to parallel/. Relies on Linux's memfd and /proc/PID/fd. Invariant: a segment never has a name in a file
// system, so that nothing is left behind, at whatever instruction the processes are killed.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace convoy {

class SharedSegments {
 public:
  /// `bytes` per member, zeros, on its own NUMA node. Null on all members when they are on several nodes, in
  /// containers that do not see each other's processes, or short of memory. Collective, and blocks inside MPI.
  [[nodiscard]] static std::unique_ptr<SharedSegments> create(MPI_Comm comm, std::size_t bytes);
  ~SharedSegments();
  SharedSegments(const SharedSegments&) = delete;
  SharedSegments& operator=(const SharedSegments&) = delete;

  /// The segment of each rank, page-aligned.
  [[nodiscard]] const std::vector<std::byte*>& starts() const { return starts_; }

 private:
  SharedSegments() = default;

  std::size_t bytes_ = 0;
  std::vector<std::byte*> starts_;
};

}  // namespace convoy
