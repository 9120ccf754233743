// SPDX-License-Identifier: Apache-2.0
//
// Rows of one HDF5 data set at random, from many threads, in the quickest way its storage allows: pread() where the
// elements lie in the file as they are, memory where the data set is small, HDF5 under its lock otherwise. Relies on
// hdf5.h. Invariant: all three give the same bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/hdf5/hdf5.h"
#include "layers/base/shape.h"

namespace convoy {

class BytePacker;
class ByteUnpacker;

class RowSource {
 public:
  /// Elements come as `dtype`, converted when the file's type is another (integers keep their value). Data sets up to
  /// `memory_limit` bytes that cannot be read with pread() are read into memory here.
  RowSource(const hdf5::File& file, const std::string& dataset, DType dtype, std::int64_t memory_limit = 256 << 20);
  /// From pack(). Opens the file when the first row is read. It must have the same size and the same end, where a
  /// checksum trailer is; otherwise, or where it cannot be opened, a SystemError of this host.
  RowSource(const std::string& path, ByteUnpacker& packed);
  void pack(BytePacker& packer) const;
  ~RowSource();
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t row_elements() const { return row_elements_; }
  /// Writes rows [first, first + count) to `out`; an Error names the file, the data set and the first row.
  void read(std::int64_t first, void* out, std::int64_t count = 1) const;

 private:
  void open() const;
  void check_file() const;
  void pread_rows(std::int64_t first, std::size_t bytes, std::byte* out) const;

  std::string path_, dataset_, place_;  // "file.h5", "/images", "file.h5:/images"
  DType dtype_ = DType::kF32;
  std::int64_t row_elements_ = 0;
  std::size_t row_bytes_ = 0;      // in the file, of what pread() gives
  std::int64_t file_offset_ = -1;  // -1: not for pread()
  std::int64_t file_bytes_ = -1;   // that the file must have; -1: any
  std::string file_end_;           // its last bytes
  bool from_uint16_ = false;       // what pread() gives is to be converted
  std::vector<std::byte> memory_;  // the whole data set
  mutable std::atomic<bool> open_ = false;
  mutable std::mutex opening_;
  mutable int descriptor_ = -1;  // for pread()
  mutable std::unique_ptr<hdf5::File> file_;
  mutable std::unique_ptr<hdf5::RowReader> reader_;
};

}  // namespace convoy
