// SPDX-License-Identifier: Apache-2.0
//
// All-reduce of buffers that lie in memory which the ranks of a node share: each rank adds its part of all buffers and
// writes the sum into all of them, so that every number crosses the memory bus as often as in a copy. Private to
// parallel/. Relies on shared_segments.h. Invariants: sums are of rank 0, 1, 2, ... in this order, so that they are
// those of one rank that adds as many microbatches; every rank starts the same sums in the same order.
#pragma once

#include <mpi.h>

#include <atomic>
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
  /// Memory for `elements` floats of each rank. Every member of `comm` calls it with the same number, close to one
  /// another; all get null when they share no memory.
  [[nodiscard]] static std::unique_ptr<SharedSum> create(MPI_Comm comm, std::int64_t elements);
  SharedSum(const SharedSum&) = delete;
  SharedSum& operator=(const SharedSum&) = delete;

  /// This rank's memory, float32 [elements], zeros; valid as long as this.
  [[nodiscard]] Tensor memory();
  /// Whether the buffer lies in it.
  [[nodiscard]] bool holds(const Tensor& buffer) const;
  /// This rank's numbers in `buffer` are final: the sum may begin. Returns its number, for finished().
  std::uint64_t start(const Tensor& buffer);
  /// Adds what may be added by now; whether that sum is in all buffers.
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
