// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/parameter_gather.h"

#include <algorithm>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/stopwatch.h"
#include "layers/base/trace.h"

namespace convoy {

ParameterGather::ParameterGather(Communicator* replicas, ParameterStore& store,
                                 const std::vector<std::int64_t>& shard_bounds, double piece_mb)
    : replicas_(replicas), store_(store) {
  if (replicas == nullptr || shard_bounds.size() <= 2) return;
  if (shard_bounds.size() != static_cast<std::size_t>(replicas->size()) + 1) {
    fail("the optimizer has {} shards for {} replicas", shard_bounds.size() - 1, replicas->size());
  }
  const auto elements =
      static_cast<std::int64_t>(piece_mb * 1024 * 1024 / sizeof(float)) / kParameterAlignment * kParameterAlignment;
  for (std::size_t owner = shard_bounds.size() - 1; owner-- > 0;) {
    for (std::int64_t end = shard_bounds[owner + 1]; end > shard_bounds[owner];) {
      const std::int64_t begin = std::max(shard_bounds[owner], end - std::max(elements, kParameterAlignment));
      pieces_.push_back({begin,
                         end,
                         static_cast<int>(owner),
                         store.values().view(begin, {end - begin}),
                         fmt::format("updated parameters {}", pieces_.size()),
                         {}});
      end = begin;
    }
  }
  next_ = pieces_.size();
}

void ParameterGather::start() {
  if (next_ < pieces_.size()) fail("an update began before the parameters of the one before were gathered");
  next_ = 0;
  for (Piece& piece : pieces_) {
    piece.start = trace::now();
    piece.pending = replicas_->broadcast(piece.values, piece.owner, piece.name);
  }
  progress();
}

void ParameterGather::ready_from(std::int64_t begin) {
  Stopwatch watch;
  while (next_ < pieces_.size() && pieces_[next_].end > begin) {
    pieces_[next_].pending->wait();
    complete();
  }
  waited_ += watch.lap();
}

void ParameterGather::progress() {
  while (next_ < pieces_.size() && pieces_[next_].pending->test()) complete();
}

// The parameters that begin in a piece end in it or in those before, which are complete.
void ParameterGather::complete() {
  Piece& piece = pieces_[next_++];
  if (trace::enabled()) trace::record(trace::Track::kReduce, piece.name, piece.start, trace::now());
  piece.pending.reset();
  store_.refresh_learned(piece.begin, piece.end);
}

double ParameterGather::take_waited() { return std::exchange(waited_, 0.0); }

}  // namespace convoy
