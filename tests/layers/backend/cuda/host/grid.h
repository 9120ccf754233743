// SPDX-License-Identifier: Apache-2.0
//
// Runs the grid of a kernel on the host: blocks one after the other in random order, the threads of a block on fibers
// of the one host thread that launches. A thread runs until it waits for others. Which one goes on then is random, in
// half of the blocks always one of the same warp where that can go on, so that a barrier that is missing shows up. The
// order is the same in every run of the program.
//
// The grid fails, with what is wrong and where, when threads wait at different barriers or for one that never comes, or
// when a kernel has written beyond a block of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <source_location>
#include <string>

#include <cuda_runtime_api.h>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {}
};
/// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace convoy::on_host {

constexpr unsigned kWarp = 32;

/// Puts a grid on a stream.
cudaError_t launch_grid(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread);

/// From now on the order is that of this seed.
void set_order(std::uint64_t seed);

/// The message of the last failure, empty before the first.
const char* failure() noexcept;
void set_failure(std::string message);

/// What the thread that runs waits for. A thread that has ended is not waited for by the block's barrier.
void block_barrier(const std::source_location& place);
void warp_barrier(unsigned mask, const std::source_location& place);

/// Of the thread that runs, within its warp.
[[nodiscard]] unsigned lane();

/// The value that lane `from` brings; all lanes of `mask` must come.
void exchange(unsigned mask, void* value, std::size_t bytes, unsigned from, const std::source_location& place);
template <class T>
T shuffle(unsigned mask, T value, unsigned from, const std::source_location& place) {
  exchange(mask, &value, sizeof(value), from, place);
  return value;
}

/// A number of its own for each block of each grid.
[[nodiscard]] std::uint64_t block_number();

/// An array of a kernel in shared memory. Its bytes are all ones, which is NaN, when a block begins.
template <class Array>
class SharedMemory {
 public:
  Array& of_block() {
    if (const std::uint64_t now = block_number(); now != block_) {
      block_ = now;
      std::memset(&memory_->array, 0xff, sizeof(Array));
    }
    return memory_->array;
  }

 private:
  struct Memory {
    Array array;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();  // by itself, so that sanitizers see its ends
  std::uint64_t block_ = 0;
};

}  // namespace convoy::on_host
