// SPDX-License-Identifier: Apache-2.0
//
// HDF5's memory driver allocates through callbacks (H5Pset_file_image_callbacks). They may not throw: null reports that
// memory is exhausted.
#include "io/hdf5/file_image_buffer.h"

#include <sys/mman.h>

#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

constexpr std::size_t kHugePage = 2 << 20;

void* image_malloc(std::size_t size, H5FD_file_image_op_t, void* memory) {
  auto& image = *static_cast<FileImageBuffer*>(memory);
  return image.grow(size) ? image.data() : nullptr;
}

void* image_realloc(void*, std::size_t size, H5FD_file_image_op_t operation, void* memory) {
  return image_malloc(size, operation, memory);
}

herr_t image_free(void*, H5FD_file_image_op_t, void*) { return 0; }  // the memory is reused

void* keep_address(void* memory) { return memory; }

herr_t keep_memory(void*) { return 0; }

}  // namespace

FileImageBuffer::~FileImageBuffer() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
}

bool FileImageBuffer::grow(std::size_t bytes) noexcept {
  if (bytes <= capacity_) return true;
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* found = memory_ == nullptr ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                   : ::mremap(memory_, capacity_, size, MREMAP_MAYMOVE);
  if (found == MAP_FAILED) return false;
  memory_ = found;
  capacity_ = size;
  static_cast<void>(::madvise(memory_, capacity_, MADV_HUGEPAGE));  // best effort
  return true;
}

void attach_memory(std::int64_t access_list, FileImageBuffer& memory, const std::string& place) {
  H5FD_file_image_callbacks_t callbacks{};
  callbacks.image_malloc = image_malloc;
  callbacks.image_realloc = image_realloc;
  callbacks.image_free = image_free;
  callbacks.udata = &memory;
  callbacks.udata_copy = keep_address;
  callbacks.udata_free = keep_memory;
  CONVOY_HDF5(H5Pset_file_image_callbacks(access_list, &callbacks), place);
}

}  // namespace convoy::hdf5
