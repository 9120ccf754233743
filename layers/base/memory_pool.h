// SPDX-License-Identifier: Apache-2.0
//
// A caching pool: blocks come back to a free list and are handed out again, so that a training step,
// which asks for the same sizes in the same order every time, allocates nothing after the first.
// Relies on the backend for raw memory. Invariant: raw_allocations() stops growing in steady state.
// Not thread-safe: it belongs to the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace convoy {

/// Where a pool's memory comes from: host memory, device memory, ...
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  /// Returns at least `bytes` bytes, aligned to 64; throws Error when there are none.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;
};

class MemoryPool;

/// One piece of pooled memory, counted by the tensors that look at it.
struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  MemoryPool* pool = nullptr;
  int references = 0;
};

class MemoryPool {
 public:
  explicit MemoryPool(RawMemory& memory) : memory_(memory) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// A block of at least `bytes` bytes with one reference: the last freed of that size, or a new one.
  Block* acquire(std::size_t bytes);
  /// Called by the last tensor of a block.
  void give_back(Block* block) noexcept;

  /// Times that raw memory was asked for, since the start.
  [[nodiscard]] std::uint64_t raw_allocations() const { return raw_allocations_; }
  /// Bytes held from the raw memory: never falls, so also the peak.
  [[nodiscard]] std::size_t bytes_held() const { return bytes_held_; }

 private:
  RawMemory& memory_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::map<std::size_t, std::vector<Block*>> free_;  // by rounded size
  std::uint64_t raw_allocations_ = 0;
  std::size_t bytes_held_ = 0;
};

}  // namespace convoy
