// SPDX-License-Identifier: Apache-2.0
//
// Reduction of gradients over the replicas, overlapped with the backward: the flat gradient buffer, in the order in
// which the backward completes it, is split into buckets, and the all-reduce of each starts as soon as it is complete
// (Li et al. 2020, PyTorch DDP). The first bucket is small, so that communication starts early. With a sharded
// optimizer buckets end where shards do, and each is reduced to the replica that updates it. Invariant: every replica
// starts the same buckets in the same order, whatever the sizes of its ready_up_to() calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/tensor.h"
#include "parallel/comm/communicator.h"

namespace convoy {

/// Elements [begin, end).
struct BucketRange {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const BucketRange& other) const = default;
};

/// Splits `total_elements` floats into a first bucket of `first_bytes` and others of `bytes`; the last may be smaller.
/// A bucket has at least one element.
[[nodiscard]] std::vector<BucketRange> bucket_ranges(std::int64_t total_elements, std::int64_t first_bytes,
                                                     std::int64_t bytes);

class GradientBuckets {
 public:
  /// `replicas` outlives this; with nullptr or one rank there is nothing to do. `flat_gradients`: float32
  /// [elements], already scaled by the global batch, so that the sum is the mean. Sizes in MiB. shard_bounds: see
  /// Optimizer; of one shard every replica gets all sums, of several each replica those of its shard.
  GradientBuckets(Communicator* replicas, const Tensor& flat_gradients, double first_bucket_mb, double bucket_mb,
                  const std::vector<std::int64_t>& shard_bounds = {});

  /// Called with the elements [begin, end) of each bucket of a step before its all-reduce. Empty: nothing is called.
  using BeforeReduce = std::function<void(std::int64_t begin, std::int64_t end)>;
  void set_before_reduce(BeforeReduce call) { before_reduce_ = std::move(call); }

  /// Called before the last backward of a step. Collective, as the next three.
  void begin_step();
  /// The gradients before `elements` are final: starts the buckets that are now complete and progresses those in
  /// flight.
  void ready_up_to(std::int64_t elements);
  /// Progresses the all-reduces in flight. Cheap; for long parts of the backward without ready_up_to().
  void progress();
  /// Starts the remaining buckets and waits for all: the buffer then holds sums, or the shard of this replica does.
  void finish();

  [[nodiscard]] const std::vector<BucketRange>& buckets() const { return ranges_; }
  /// Number of buckets whose all-reduce has started in this step.
  [[nodiscard]] std::size_t started() const { return started_; }

 private:
  void complete();
  /// Cuts the buckets at the shards' bounds, and finds the owner of each.
  void divide_among(const std::vector<std::int64_t>& shard_bounds);
  [[nodiscard]] Pending reduce(std::size_t bucket);

  Communicator* replicas_;  // nullptr: nothing to do
  std::int64_t elements_;
  std::vector<BucketRange> ranges_;
  std::vector<int> owners_;  // by bucket: the replica that updates it; empty: all do
  std::vector<Tensor> views_;
  std::vector<std::string> names_;
  std::vector<Pending> pending_;  // by bucket; empty where not under way
  std::vector<double> start_;     // by bucket: when that began, for the trace
  std::size_t started_ = 0;
  std::size_t finished_ = 0;  // buckets before this one are complete
  bool in_step_ = false;
  BeforeReduce before_reduce_;
};

}  // namespace convoy
