// SPDX-License-Identifier: Apache-2.0
#include "layers/base/memory_pool.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

// Sizes are rounded up so that nearly equal tensors share blocks: to 64 bytes when small, above that to an
// eighth of the power of two below, which wastes at most 12.5 %.
std::size_t rounded(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 64);
  const std::size_t step = std::max<std::size_t>(64, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

MemoryPool::~MemoryPool() {
  for (auto& block : blocks_) memory_.release(block->data);
}

Block* MemoryPool::acquire(std::size_t bytes) {
  const std::size_t size = exact_ ? std::max<std::size_t>(bytes, 1) : rounded(bytes);
  auto& list = free_[size];
  Block* block = nullptr;
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
  } else {
    auto fresh = std::make_unique<Block>();
    fresh->data = memory_.allocate(size);
    fresh->bytes = size;
    fresh->pool = this;
    block = fresh.get();
    blocks_.push_back(std::move(fresh));
    list.reserve(blocks_.size());  // so that give_back never allocates
    ++raw_allocations_;
    bytes_held_ += size;
    peak_bytes_ = std::max(peak_bytes_, bytes_held_);
  }
  block->references = 1;
  if (watching_ && !block->watched) {
    block->watched = true;
    watched_.push_back(block);
  }
  return block;
}

void MemoryPool::give_back(Block* block) noexcept {
  if (block->reservations == 0 || watching_) free_.find(block->bytes)->second.push_back(block);
}

void MemoryPool::release_free() {
  if (watching_) fail("free memory cannot be released within a reservation of the memory pool");
  std::set<const Block*> released;
  for (auto& [bytes, list] : free_) {
    for (const Block* block : list) {
      memory_.release(block->data);
      bytes_held_ -= bytes;
      released.insert(block);
    }
    list.clear();
  }
  std::erase_if(blocks_, [&](const auto& block) { return released.contains(block.get()); });
}

void MemoryPool::begin_reservation() {
  if (watching_) fail("a reservation of the memory pool began within another");
  watching_ = true;
  for (auto& block : blocks_) {
    if (block->reservations > 0 && block->references == 0) free_.find(block->bytes)->second.push_back(block.get());
  }
}

std::unique_ptr<PoolReservation> MemoryPool::end_reservation() {
  watching_ = false;
  auto reservation = std::make_unique<PoolReservation>(*this);
  for (Block* block : watched_) {
    block->watched = false;
    ++block->reservations;
  }
  reservation->blocks_ = std::move(watched_);
  watched_.clear();
  for (auto& [bytes, list] : free_) {
    std::erase_if(list, [](const Block* block) { return block->reservations > 0; });
  }
  return reservation;
}

PoolReservation::~PoolReservation() {
  for (Block* block : blocks_) {
    if (--block->reservations == 0 && block->references == 0) pool_.give_back(block);
  }
}

}  // namespace convoy
