// SPDX-License-Identifier: Apache-2.0
//
// Memory of the CPU backend: ordinary host memory, aligned for vector loads. Large blocks start on a huge page and
// ask the kernel for such pages, which saves most of the TLB misses of the memory-bound kernels.
#include <cstdlib>
#include <cstring>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::size_t kVectorBytes = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = 2 * kHugePage;

}  // namespace

void* OnednnBackend::HostMemory::allocate(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugeFrom ? kHugePage : kVectorBytes;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, whole);
  if (data == nullptr) {
    fail("out of memory: {:.1f} MiB more were asked for (a smaller batch or more microbatches need less)",
         static_cast<double>(bytes) / (1 << 20));
  }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(data, whole, MADV_HUGEPAGE);  // a wish: small pages work as well
#endif
  return data;
}

void OnednnBackend::HostMemory::release(void* data) noexcept { std::free(data); }

double* OnednnBackend::scratch(std::size_t count) {
  if (scratch_.size() < count) scratch_.resize(count);
  return scratch_.data();
}

void OnednnBackend::copy_from_host(const void* source, const Tensor& destination) {
  if (destination.bytes() > 0) std::memcpy(destination.raw(), source, destination.bytes());
}

void OnednnBackend::copy_to_host(const Tensor& source, void* destination) {
  if (source.bytes() > 0) std::memcpy(destination, source.raw(), source.bytes());
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
