// SPDX-License-Identifier: Apache-2.0
//
// Memory that HDF5 file images reuse: mapped once, in huge pages where available, so that a checkpoint causes no page
// faults after the first. Relies on mmap. Invariant: at most one image uses it at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace convoy::hdf5 {

class FileImageBuffer {
 public:
  FileImageBuffer() = default;
  ~FileImageBuffer();
  FileImageBuffer(const FileImageBuffer&) = delete;
  FileImageBuffer& operator=(const FileImageBuffer&) = delete;

  /// Grows to at least this size and keeps the contents; the address may change. False when memory is exhausted.
  bool grow(std::size_t bytes) noexcept;
  [[nodiscard]] void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
  std::size_t capacity_ = 0;
};

/// Files that are created with this access list (memory driver) use `memory`. `place` is used in messages.
void attach_memory(std::int64_t access_list, FileImageBuffer& memory, const std::string& place);

}  // namespace convoy::hdf5
