// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/gradient_buckets.h"

#include <algorithm>

#include "layers/base/error.h"
#include "layers/base/trace.h"

namespace convoy {

namespace {

constexpr std::int64_t kElementBytes = sizeof(float);
constexpr double kMaxMib = 1 << 20;  // a TiB: beyond it a size is a mistake, and bytes still fit

std::int64_t bytes_of(double mib, const char* key) {
  if (!(mib > 0) || mib > kMaxMib) fail_usage("parallel.{}: {:g} MiB is not a bucket size (above 0)", key, mib);
  return static_cast<std::int64_t>(mib * 1024 * 1024);
}

}  // namespace

std::vector<BucketRange> bucket_ranges(std::int64_t total_elements, std::int64_t first_bytes, std::int64_t bytes) {
  std::vector<BucketRange> ranges;
  std::int64_t next = std::max<std::int64_t>(1, first_bytes / kElementBytes);
  for (std::int64_t begin = 0; begin < total_elements;) {
    const std::int64_t end = begin + std::min(next, total_elements - begin);
    ranges.push_back({begin, end});
    begin = end;
    next = std::max<std::int64_t>(1, bytes / kElementBytes);
  }
  return ranges;
}

GradientBuckets::GradientBuckets(Communicator* replicas, const Tensor& flat_gradients, double first_bucket_mb,
                                 double bucket_mb, const std::vector<std::int64_t>& shard_bounds)
    : replicas_(replicas != nullptr && replicas->size() > 1 ? replicas : nullptr),
      elements_(flat_gradients ? flat_gradients.size() : 0) {
  if (flat_gradients && flat_gradients.dtype() != DType::kF32) {
    fail("gradients are reduced in float32, not in {}", dtype_name(flat_gradients.dtype()));
  }
  ranges_ = bucket_ranges(elements_, bytes_of(first_bucket_mb, "first_bucket_mb"), bytes_of(bucket_mb, "bucket_mb"));
  if (shard_bounds.size() > 2) divide_among(shard_bounds);
  for (const BucketRange& range : ranges_) {
    views_.push_back(flat_gradients.view(range.begin, {range.size()}));
    names_.push_back(fmt::format("gradient bucket {}", names_.size()));
  }
  pending_.resize(ranges_.size());
  start_.resize(ranges_.size());
}

void GradientBuckets::divide_among(const std::vector<std::int64_t>& shard_bounds) {
  std::vector<BucketRange> divided;
  int owner = 0;
  for (const BucketRange& range : ranges_) {
    for (std::int64_t begin = range.begin; begin < range.end;) {
      while (shard_bounds[static_cast<std::size_t>(owner) + 1] <= begin) ++owner;
      const std::int64_t end = std::min(range.end, shard_bounds[static_cast<std::size_t>(owner) + 1]);
      divided.push_back({begin, end});
      owners_.push_back(owner);
      begin = end;
    }
  }
  ranges_ = std::move(divided);
}

Pending GradientBuckets::reduce(std::size_t bucket) {
  if (owners_.empty()) return replicas_->all_reduce(views_[bucket], ReduceOp::kSum, names_[bucket]);
  return replicas_->reduce(views_[bucket], ReduceOp::kSum, owners_[bucket], names_[bucket]);
}

void GradientBuckets::begin_step() {
  if (in_step_) fail("a step began before the gradients of the one before were reduced");
  in_step_ = true;
  started_ = 0;
  finished_ = 0;
}

void GradientBuckets::ready_up_to(std::int64_t elements) {
  if (!in_step_) fail("gradients became ready outside a step");
  if (elements > elements_) fail("{} gradients are ready, of {}", elements, elements_);
  if (replicas_ == nullptr) return;
  while (started_ < ranges_.size() && ranges_[started_].end <= elements) {
    if (before_reduce_) before_reduce_(ranges_[started_].begin, ranges_[started_].end);
    start_[started_] = trace::now();
    pending_[started_] = reduce(started_);
    ++started_;
  }
  progress();
}

void GradientBuckets::progress() {
  // In order: testing one operation lets the library move all of them.
  while (finished_ < started_ && pending_[finished_]->test()) complete();
}

void GradientBuckets::complete() {
  if (trace::enabled()) trace::record(trace::Track::kReduce, names_[finished_], start_[finished_], trace::now());
  pending_[finished_++].reset();
}

void GradientBuckets::finish() {
  ready_up_to(elements_);
  while (finished_ < started_) {
    pending_[finished_]->wait();
    complete();
  }
  in_step_ = false;
}

}  // namespace convoy
