// SPDX-License-Identifier: Apache-2.0
//
// Relies on pread() being safe from any thread. pread() rather than a mapping: a file that shrinks or a network file
// system that fails gives an error with a place, where a mapping gives SIGBUS. Invariant: the way of reading is chosen
// once, at opening.
#include "io/images/row_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "layers/base/system_error.h"

namespace convoy {

RowSource::RowSource(const hdf5::File& file, const std::string& dataset, DType dtype, std::int64_t memory_limit)
    : place_(file.path() + ":" + dataset), dtype_(dtype) {
  const hdf5::DatasetInfo info = file.info(dataset);
  const std::int64_t rows = info.dims.empty() ? 0 : info.dims.front();
  if (info.size() < 1) fail_usage("{}: shape {} has no samples", place_, info.shape_text());
  row_elements_ = info.size() / rows;
  row_bytes_ = static_cast<std::size_t>(row_elements_) * dtype_size(dtype);
  from_uint16_ = info.uint16_offset >= 0 && dtype == DType::kF32;
  if (from_uint16_ || (info.file_offset >= 0 && info.dtype == dtype)) {
    file_offset_ = from_uint16_ ? info.uint16_offset : info.file_offset;
    if (from_uint16_) row_bytes_ = static_cast<std::size_t>(row_elements_) * sizeof(std::uint16_t);
    descriptor_ = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_system(errno, "cannot read {}: {}", file.path(), std::strerror(errno));
  } else if (rows <= memory_limit / static_cast<std::int64_t>(row_bytes_)) {
    memory_.resize(static_cast<std::size_t>(rows) * row_bytes_);
    hdf5::RowReader(file, dataset).read(0, rows, dtype, memory_.data());
  } else {
    file_ = std::make_unique<hdf5::File>(file.path());
    reader_ = std::make_unique<hdf5::RowReader>(*file_, dataset);
  }
}

RowSource::~RowSource() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RowSource::pread_rows(std::int64_t first, std::size_t bytes, std::byte* out) const {
  std::size_t done = 0;
  while (done < bytes) {
    const auto offset = file_offset_ + first * static_cast<std::int64_t>(row_bytes_) + static_cast<std::int64_t>(done);
    const ssize_t count = ::pread(descriptor_, out + done, bytes - done, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail("{}: cannot read sample {}: {}", place_, first, count == 0 ? "the file ends early" : std::strerror(errno));
    }
    done += static_cast<std::size_t>(count);
  }
}

void RowSource::read(std::int64_t first, void* out, std::int64_t count) const {
  const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes_;
  if (from_uint16_) {
    thread_local std::vector<std::uint16_t> elements;  // grows once per thread
    elements.resize(static_cast<std::size_t>(count * row_elements_));
    pread_rows(first, bytes, reinterpret_cast<std::byte*>(elements.data()));
    std::copy(elements.begin(), elements.end(), static_cast<float*>(out));
  } else if (descriptor_ >= 0) {
    pread_rows(first, bytes, static_cast<std::byte*>(out));
  } else if (!memory_.empty()) {
    std::memcpy(out, memory_.data() + static_cast<std::size_t>(first) * row_bytes_, bytes);
  } else {
    try {
      reader_->read(first, count, dtype_, out);
    } catch (const Error& error) {
      fail("sample {}: {}", first, error.what());
    }
  }
}

}  // namespace convoy
