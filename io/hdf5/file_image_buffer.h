// SPDX-License-Identifier: Apache-2.0
//
// Memory for one HDF5 file image after the other: mapped once, in huge pages where the system grants them, and kept, so
// that a checkpoint does not fault in its pages anew. Relies on mmap. Invariant: at most one image uses it at a time.
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

  /// At least so many bytes, with what is in them already; may move. False when there is no memory.
  bool grow(std::size_t bytes) noexcept;
  [[nodiscard]] void* data() const { return memory_; }

 private:
  void* memory_ = nullptr;
  std::size_t capacity_ = 0;
};

/// Makes files that are created with this access list (memory driver) live in `memory`. `place` is for messages.
void attach_memory(std::int64_t access_list, FileImageBuffer& memory, const std::string& place);

}  // namespace convoy::hdf5
