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
  bool watched = false;  ///< see MemoryPool::begin_reservation
  int reservations = 0;  ///< that hold it
};

/// Keeps blocks out of their pool's free lists until the last reservation of them is destroyed; the pool outlives it.
class PoolReservation {
 public:
  explicit PoolReservation(MemoryPool& pool) : pool_(pool) {}
  ~PoolReservation();
  PoolReservation(const PoolReservation&) = delete;
  PoolReservation& operator=(const PoolReservation&) = delete;

 private:
  friend class MemoryPool;
  MemoryPool& pool_;
  std::vector<Block*> blocks_;
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

  /// For work that is recorded and run again, which will write its temporaries each time: the blocks acquired between
  /// these two calls are not handed out while the reservation lives, once they are free. Recorded works run one after
  /// the other, so a later reservation gets the free blocks of those before first, and holds them, too: what a tensor
  /// made between the two calls has in it is lost when another work is run.
  void begin_reservation();
  [[nodiscard]] std::unique_ptr<PoolReservation> end_reservation();

  /// Gives free blocks back to the raw memory: other sizes will be asked for from now on. Not within a reservation.
  void release_free();

  /// From now on blocks have exactly the sizes asked for, so that a tool that watches memory sees what goes beyond a
  /// tensor.
  void keep_sizes_exact() { exact_ = true; }

  /// Times that raw memory was asked for, since the start.
  [[nodiscard]] std::uint64_t raw_allocations() const { return raw_allocations_; }
  /// Bytes held from the raw memory, and the most that ever were.
  [[nodiscard]] std::size_t bytes_held() const { return bytes_held_; }
  [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  RawMemory& memory_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::map<std::size_t, std::vector<Block*>> free_;  // by rounded size
  std::vector<Block*> watched_;                      // acquired since begin_reservation(), each once
  bool watching_ = false;
  bool exact_ = false;
  std::uint64_t raw_allocations_ = 0;
  std::size_t bytes_held_ = 0, peak_bytes_ = 0;
};

}  // namespace convoy
