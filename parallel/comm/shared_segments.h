// SPDX-License-Identifier: Apache-2.0
//
// One shared memory segment per rank of a communicator whose ranks are on one node; every rank maps all segments.
// Private to parallel/. Relies on POSIX shared memory. Invariant: the names are unlinked as soon as all ranks have
// mapped the segments, so that nothing is left behind however the processes end.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace convoy {

class SharedSegments {
 public:
  /// `bytes` per member, zeros, on its own NUMA node. Null on all members when they are on several nodes, or when
  /// /dev/shm is too small. Collective; all members must call it within seconds.
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
