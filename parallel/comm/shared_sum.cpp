// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/shared_sum.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <new>
#include <utility>

#include "layers/base/host_loops.h"
#include "parallel/base/mpi_check.h"

namespace convoy {

namespace {

constexpr std::int64_t kLine = 16;     // floats in a cache line: a rank's part is whole lines
constexpr std::int64_t kBlock = 4096;  // floats that are read from all ranks before the next: they stay in the cache

// a[i] and b[i] become their sum.
CONVOY_VECTORIZED void add_pair(float* a, float* b, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

CONVOY_VECTORIZED void add_to(float* sum, const float* values, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

std::unique_ptr<SharedSum> SharedSum::create(MPI_Comm comm, std::int64_t elements) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share them");
  const std::size_t bytes = sizeof(Flags) + static_cast<std::size_t>(elements) * sizeof(float);
  auto segments = SharedSegments::create(comm, bytes);
  if (!segments) return nullptr;
  int rank = 0;
  CONVOY_MPI_CHECK(MPI_Comm_rank(comm, &rank));
  std::unique_ptr<SharedSum> sum(new SharedSum(std::move(segments), rank, elements));
  CONVOY_MPI_CHECK(MPI_Barrier(comm));  // no rank reads flags before they exist
  return sum;
}

SharedSum::SharedSum(std::unique_ptr<SharedSegments> segments, int rank, std::int64_t elements)
    : segments_(std::move(segments)), rank_(static_cast<std::size_t>(rank)), elements_(elements) {
  new (segments_->starts()[rank_]) Flags();
  for (std::byte* start : segments_->starts()) {
    flags_.push_back(std::launder(reinterpret_cast<Flags*>(start)));
    values_.push_back(reinterpret_cast<float*>(start + sizeof(Flags)));
  }
  block_.data = values_[rank_];
  block_.bytes = static_cast<std::size_t>(elements) * sizeof(float);
  block_.references = 1;  // ours: no pool gets it
}

Tensor SharedSum::memory() {
  ++block_.references;
  return {&block_, Shape{elements_}, DType::kF32};
}

bool SharedSum::holds(const Tensor& buffer) const {
  const auto* start = buffer.data<float>();
  const std::less_equal<const float*> not_after;
  return buffer.dtype() == DType::kF32 && not_after(values_[rank_], start) &&
         not_after(start + buffer.size(), values_[rank_] + elements_);
}

std::uint64_t SharedSum::start(const Tensor& buffer) {
  waiting_.push_back({++started_, buffer.data<float>() - values_[rank_], buffer.size()});
  flags_[rank_]->started.store(started_, std::memory_order_release);
  return started_;
}

bool SharedSum::all_reached(std::atomic<std::uint64_t> Flags::*flag, std::uint64_t number) const {
  return std::all_of(flags_.begin(), flags_.end(),
                     [&](const Flags* of_rank) { return (of_rank->*flag).load(std::memory_order_acquire) >= number; });
}

bool SharedSum::finished(std::uint64_t number) {
  while (!waiting_.empty() && all_reached(&Flags::started, waiting_.front().number)) {
    add_part(waiting_.front());
    flags_[rank_]->added.store(waiting_.front().number, std::memory_order_release);
    waiting_.pop_front();
  }
  return all_reached(&Flags::added, number);
}

void SharedSum::add_part(const Range& range) const {
  const auto ranks = static_cast<std::int64_t>(values_.size());
  const auto rank = static_cast<std::int64_t>(rank_);
  const auto cut = [&](std::int64_t part) {
    return part == ranks ? range.count : range.count * part / ranks / kLine * kLine;
  };
  const std::int64_t from = range.first + cut(rank);
  parallel_ranges(cut(rank + 1) - cut(rank), kBlock, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = from + first; i < from + last; i += kBlock) {
      const std::int64_t count = std::min(kBlock, from + last - i);
      if (ranks == 2) {
        add_pair(values_[0] + i, values_[1] + i, count);
        continue;
      }
      for (std::int64_t other = 1; other < ranks; ++other) {
        add_to(values_[0] + i, values_[static_cast<std::size_t>(other)] + i, count);
      }
      for (std::int64_t other = 1; other < ranks; ++other) {
        std::copy_n(values_[0] + i, count, values_[static_cast<std::size_t>(other)] + i);
      }
    }
  });
}

}  // namespace convoy
