// SPDX-License-Identifier: Apache-2.0
//
// Memory of the CPU backend: ordinary host memory, aligned for vector loads. Large blocks start on a huge page and
// ask the kernel for such pages, which saves most of the TLB misses of the memory-bound kernels. In a rehearsal large
// blocks are address space that nothing touches.
#include <sys/mman.h>
#include <sys/resource.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

constexpr std::size_t kVectorBytes = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;
constexpr std::size_t kReservedFrom = std::size_t{1} << 16;  // in a rehearsal; smaller blocks are memory

// Whether this process may have only so much address space, or so much of it that is private.
bool space_is_limited() {
  rlimit whole{}, data{};
  return getrlimit(RLIMIT_AS, &whole) != 0 || whole.rlim_cur != RLIM_INFINITY || getrlimit(RLIMIT_DATA, &data) != 0 ||
         data.rlim_cur != RLIM_INFINITY;
}

// Address space of its own: pages of zeros if something should read it after all. Null where it counts against a limit.
void* reserve(std::size_t bytes) {
  if (space_is_limited()) return nullptr;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

OnednnBackend::HostMemory::HostMemory() : reserves_(rehearsing()) {}

OnednnBackend::HostMemory::~HostMemory() {
  for (const auto& [data, bytes] : reserved_) {
    if (bytes > 0) munmap(data, bytes);
  }
}

void* OnednnBackend::HostMemory::allocate(std::size_t bytes) {
  if (reserves_ && bytes >= kReservedFrom) {
    if (void* data = reserve(bytes)) {
      reserved_.emplace(data, bytes);
      return data;
    }
    next_address_ += kVectorBytes;                           // an address that only tells blocks apart
    void* address = reinterpret_cast<void*>(next_address_);  // NOLINT(performance-no-int-to-ptr)
    reserved_.emplace(address, 0);
    return address;
  }
  const std::size_t alignment = bytes >= kHugeFrom ? kHugePage : kVectorBytes;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, whole);
  if (data == nullptr) {
    fail("out of memory: {:.1f} MiB more were asked for (a smaller batch or more microbatches need less)",
         static_cast<double>(bytes) / (1 << 20));
  }
#ifdef MADV_HUGEPAGE
  if (alignment == kHugePage) madvise(data, whole, MADV_HUGEPAGE);  // a wish: small pages work as well
#endif
  if (reserves_) std::memset(data, 0, whole);  // labels, counts: valid ones
  return data;
}

void OnednnBackend::HostMemory::release(void* data) noexcept {
  const auto reserved = reserved_.find(data);
  if (reserved == reserved_.end()) return std::free(data);
  if (reserved->second > 0) munmap(data, reserved->second);
  reserved_.erase(reserved);
}

double* OnednnBackend::scratch(std::size_t count) {
  if (scratch_.size() < count) scratch_.resize(count);
  return scratch_.data();
}

void OnednnBackend::copy_from_host(const void* source, const Tensor& destination) {
  if (destination.bytes() > 0 && !rehearsing()) std::memcpy(destination.raw(), source, destination.bytes());
}

void OnednnBackend::copy_to_host(const Tensor& source, void* destination) {
  if (source.bytes() > 0 && !rehearsing()) std::memcpy(destination, source.raw(), source.bytes());
}

void OnednnBackend::zero(const Tensor& x) {
  auto* data = static_cast<std::byte*>(x.raw());
  parallel_ranges(static_cast<std::int64_t>(x.bytes()), std::int64_t{1} << 20,
                  [=](std::int64_t first, std::int64_t last, int) {
                    if (last > first) std::memset(data + first, 0, static_cast<std::size_t>(last - first));
                  });
}

std::unique_ptr<WeightLayout> OnednnBackend::vector_layout(std::int64_t count) {
  return std::make_unique<WeightLayout>(Shape{count}, count);
}

}  // namespace convoy
