// SPDX-License-Identifier: Apache-2.0
//
// A piece of memory for each rank of a communicator that all of them can read and write, when they are on one node.
// Private to parallel/. Relies on POSIX shared memory. Invariant: its names are gone as soon as all have mapped it, so
// that nothing is left behind however the processes end.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace convoy {

class SharedSegments {
 public:
  /// `bytes` of each member, zeros, on its own NUMA node. Every member calls it, close to one another; all get null
  /// when they are not on one node, or its shared memory (/dev/shm) is too small.
  [[nodiscard]] static std::unique_ptr<SharedSegments> create(MPI_Comm comm, std::size_t bytes);
  ~SharedSegments();
  SharedSegments(const SharedSegments&) = delete;
  SharedSegments& operator=(const SharedSegments&) = delete;

  /// That of each rank, aligned to a page.
  [[nodiscard]] const std::vector<std::byte*>& starts() const { return starts_; }

 private:
  SharedSegments() = default;

  std::size_t bytes_ = 0;
  std::vector<std::byte*> starts_;
};

}  // namespace convoy
