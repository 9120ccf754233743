// SPDX-License-Identifier: Apache-2.0
//
// All-reduce of buffers in memory that the ranks of a node share: each rank adds its part of all buffers and writes the
// sum into all of them, so that memory traffic is that of a copy. Private to parallel/. Relies on shared_segments.h.
// Invariants: summation is in rank order, as of one rank that accumulates as many microbatches; every rank starts the
// same sums in the same order.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "layers/base/memory_pool.h"
#include "layers/base/tensor.h"
#include "parallel/comm/shared_segments.h"

namespace convoy {

class SharedSum {
 public:
  /// Memory for `elements` floats per rank; null on all members without shared memory. Collective, with the same
  /// number; all members must call it within seconds.
  [[nodiscard]] static std::unique_ptr<SharedSum> create(MPI_Comm comm, std::int64_t elements);
  SharedSum(const SharedSum&) = delete;
  SharedSum& operator=(const SharedSum&) = delete;

  /// This rank's memory, float32 [elements], zeros; valid as long as this.
  [[nodiscard]] Tensor memory();
  /// Whether the buffer is part of that memory.
  [[nodiscard]] bool holds(const Tensor& buffer) const;
  /// Starts a sum: this rank's values in `buffer` are final. Returns the sum's number, for finished().
  std::uint64_t start(const Tensor& buffer);
  /// Adds the parts that are ready; true when the sum is in all buffers.
  bool finished(std::uint64_t number);

 private:
  struct Flags {  // of one rank, in its segment
    alignas(64) std::atomic<std::uint64_t> started{0};
    alignas(64) std::atomic<std::uint64_t> added{0};
  };
  struct Range {
    std::uint64_t number;
    std::int64_t first, count;
  };

  SharedSum(std::unique_ptr<SharedSegments> segments, int rank, std::int64_t elements);
  [[nodiscard]] bool all_reached(std::atomic<std::uint64_t> Flags::*flag, std::uint64_t number) const;
  void add_part(const Range& range) const;

  std::unique_ptr<SharedSegments> segments_;
  std::size_t rank_;
  std::int64_t elements_;
  std::vector<Flags*> flags_;   // of each rank
  std::vector<float*> values_;  // of each rank
  Block block_;
  std::deque<Range> waiting_;  // started here, not yet added
  std::uint64_t started_ = 0;
};

}  // namespace convoy
