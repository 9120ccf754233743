// SPDX-License-Identifier: Apache-2.0
//
// Sums gradients over the replicas while backward still runs: the flat gradient buffer, laid out in the
// order in which backward finishes it, is cut into buckets, and each starts its all-reduce as soon as it is
// final (Li et al. 2020, PyTorch DDP). The first bucket is small, so that communication starts early. Invariant:
// every replica starts the same buckets in the same order, whatever the sizes of its ready_up_to() calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/base/tensor.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// Elements from begin up to, not including, end.
struct BucketRange {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const BucketRange& other) const = default;
};

/// Cuts `total_elements` floats into a first bucket of `first_bytes` and further ones of `bytes` (the last
/// has what is left). A bucket holds at least one element.
[[nodiscard]] std::vector<BucketRange> bucket_ranges(std::int64_t total_elements, std::int64_t first_bytes,
                                                     std::int64_t bytes);

class GradientBuckets {
 public:
  /// `replicas` outlives this; with nullptr or one rank there is nothing to do. `flat_gradients`: float32
  /// [elements], already scaled by the global batch, so that the sum is the mean. Sizes in MiB.
  GradientBuckets(Communicator* replicas, const Tensor& flat_gradients, double first_bucket_mb, double bucket_mb);

  /// Before the backward whose gradients are final. Every replica calls this and the next three.
  void begin_step();
  /// The gradients of this step before `elements` are final: starts every bucket that is now complete and
  /// progresses those under way.
  void ready_up_to(std::int64_t elements);
  /// Progresses the reductions under way. Cheap; for long parts of backward without ready_up_to().
  void progress();
  /// Starts what is left and waits for all: the buffer then holds sums.
  void finish();

  [[nodiscard]] const std::vector<BucketRange>& buckets() const { return ranges_; }
  /// Buckets whose reduction this step has started.
  [[nodiscard]] std::size_t started() const { return started_; }

 private:
  void complete();

  Communicator* replicas_;  // nullptr: nothing to do
  std::int64_t elements_;
  std::vector<BucketRange> ranges_;
  std::vector<Tensor> views_;
  std::vector<std::string> names_;
  std::vector<Pending> pending_;  // by bucket; empty where not under way
  std::vector<double> start_;     // by bucket: when that began, for the trace
  std::size_t started_ = 0;
  std::size_t finished_ = 0;  // buckets before this one are complete
  bool in_step_ = false;
};

}  // namespace convoy
