// SPDX-License-Identifier: Apache-2.0
//
// Device memory and pinned memory of the CUDA runtime on the host, and copies. Memory is NaN when it is handed out and
// when it has been freed; freed memory is kept for a while, in which nothing may write it.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/host/device_memory.h"
#include "tests/layers/backend/cuda/host/grid.h"
#include "tests/layers/backend/cuda/host/streams.h"

using namespace convoy::on_host;

namespace {

#ifdef CONVOY_ADDRESS_SANITIZER
constexpr std::size_t kGuardBytes = 0;  // it sees more
constexpr std::size_t kKeptBytes = 0;
#else
constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;  // of freed memory
#endif
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHead = kGuardBytes == 0 ? 0 : kAlignment;
constexpr int kGuard = 0xA5, kFresh = 0xff, kFreed = 0xff;

struct Block {
  std::byte* start;
  std::size_t bytes;
  bool pinned;
  [[nodiscard]] const char* kind() const { return pinned ? "pinned" : "device"; }
};

struct Memory {
  std::map<std::byte*, Block> blocks;
  std::deque<Block> freed;
  std::size_t freed_bytes = 0;
};

Memory& memory() {  // never destroyed: backends may be static
  static auto* all = new Memory;
  return *all;
}

Scheduler& scheduler() { return Scheduler::instance(); }

bool all_are(const std::byte* data, std::size_t bytes, int value) {
  return std::all_of(data, data + bytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

const Block* block_of(const void* address, std::size_t bytes) {
  auto* const data = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  const auto next = memory().blocks.upper_bound(data);
  if (next == memory().blocks.begin()) return nullptr;
  const Block& block = std::prev(next)->second;
  return data + bytes <= block.start + block.bytes ? &block : nullptr;
}

void let_go(const Block& block) {
  if (kKeptBytes > 0 && !all_are(block.start, block.bytes, kFreed)) {
    scheduler().fail(
        cudaErrorLaunchFailure,
        fmt::format("something wrote into {} bytes of {} memory after they were freed", block.bytes, block.kind()));
  }
  std::free(block.start - kHead);
}

cudaError_t allocate(void** data, std::size_t bytes, bool pinned) {
  void* all = nullptr;
  if (posix_memalign(&all, kAlignment, kHead + bytes + kGuardBytes) != 0) return cudaErrorMemoryAllocation;
  std::byte* const start = static_cast<std::byte*>(all) + kHead;
  std::memset(start - kGuardBytes, kGuard, kGuardBytes);
  std::memset(start, kFresh, bytes);
  std::memset(start + bytes, kGuard, kGuardBytes);
  memory().blocks.emplace(start, Block{start, bytes, pinned});
  *data = start;
  return cudaSuccess;
}

cudaError_t release(void* data, bool pinned) {
  if (data == nullptr) return cudaSuccess;
  const auto found = memory().blocks.find(static_cast<std::byte*>(data));
  if (found == memory().blocks.end() || found->second.pinned != pinned) return cudaErrorInvalidValue;
  const Block block = found->second;
  memory().blocks.erase(found);
  if (kKeptBytes > 0) std::memset(block.start, kFreed, block.bytes);
  memory().freed.push_back(block);
  memory().freed_bytes += block.bytes;
  while (memory().freed_bytes > kKeptBytes || (kKeptBytes == 0 && !memory().freed.empty())) {
    memory().freed_bytes -= memory().freed.front().bytes;
    let_go(memory().freed.front());
    memory().freed.pop_front();
  }
  return cudaSuccess;
}

// At the time when a copy runs.
bool is_there(const void* address, std::size_t bytes, const char* what) {
  if (block_of(address, bytes) != nullptr) return true;
  scheduler().fail(cudaErrorLaunchFailure,
                   fmt::format("{} of {} bytes which are no memory, or were freed", what, bytes));
  return false;
}

}  // namespace

std::string convoy::on_host::damaged_guard() {
  for (const auto& [data, block] : memory().blocks) {
    const bool before = all_are(data - kGuardBytes, kGuardBytes, kGuard);
    const bool behind = all_are(data + block.bytes, kGuardBytes, kGuard);
    if (before && behind) continue;
    std::memset(data - kGuardBytes, kGuard, kGuardBytes);
    std::memset(data + block.bytes, kGuard, kGuardBytes);
    return fmt::format("something wrote {} a block of {} bytes of {} memory", before ? "behind" : "before", block.bytes,
                       block.kind());
  }
  return {};
}

bool convoy::on_host::is_device_memory(const void* data, std::size_t bytes) {
  const Block* block = block_of(data, bytes);
  return block != nullptr && !block->pinned;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  std::unique_lock lock(scheduler().mutex);
  const cudaError_t error = scheduler().maybe_synchronize(lock, "cudaMalloc");
  return error != cudaSuccess ? error : allocate(data, bytes, false);
}

// CUDA waits for the device here most of the time, on which nobody may rely.
cudaError_t cudaFree(void* data) {
  std::unique_lock lock(scheduler().mutex);
  const cudaError_t error = scheduler().maybe_synchronize(lock, "cudaFree");
  return error != cudaSuccess ? error : release(data, false);
}

cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  *left = *total = 0;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  std::unique_lock lock(scheduler().mutex);
  const cudaError_t error = scheduler().maybe_synchronize(lock, "cudaHostAlloc");
  return error != cudaSuccess ? error : allocate(data, bytes, true);
}

cudaError_t cudaFreeHost(void* data) {
  std::unique_lock lock(scheduler().mutex);
  const cudaError_t error = scheduler().maybe_synchronize(lock, "cudaFreeHost");
  return error != cudaSuccess ? error : release(data, true);
}

// Pinned memory is read when the copy runs, other memory of the host now.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const auto copy = [to, bytes](const void* source) {
    if (is_there(to, bytes, "a copy to")) std::memcpy(to, source, bytes);
  };
  bool pageable = false;
  {
    const std::lock_guard lock(scheduler().mutex);
    const void* host = kind == cudaMemcpyHostToDevice ? from : to;
    pageable = kind != cudaMemcpyDeviceToDevice && block_of(host, bytes) == nullptr;
    if (pageable && stream->graph != nullptr) return invalidate(*stream->graph, cudaErrorStreamCaptureUnsupported);
  }
  if (!pageable) {
    return enqueue(stream, "copy", [=] {
      if (is_there(from, bytes, "a copy")) copy(from);
    });
  }
  if (kind == cudaMemcpyDeviceToHost) return cudaErrorInvalidValue;  // the host would wait for it: not imitated
  const auto* source = static_cast<const std::byte*>(from);
  return enqueue(stream, "copy",
                 [copy, staged = std::vector<std::byte>(source, source + bytes)] { copy(staged.data()); });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, "memset", [=] {
    if (is_there(data, bytes, "a memset")) std::memset(data, value, bytes);
  });
}
