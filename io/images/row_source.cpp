// SPDX-License-Identifier: Apache-2.0
//
// Relies on pread() being safe from any thread. pread() rather than a mapping: a file that shrinks or a network file
// system that fails gives an error with a place, where a mapping gives SIGBUS. Invariant: the way of reading is chosen
// once, when rank 0 opens the file.
#include "io/images/row_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "io/files/packed_bytes.h"
#include "layers/base/host_name.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

// As much as a checksum trailer takes (io/hdf5/checksum_trailer.h), or less if the file is shorter or cannot be read.
std::string end_of(const std::string& path, std::int64_t size) {
  constexpr std::int64_t kEndBytes = 64;
  std::string end(static_cast<std::size_t>(std::min(kEndBytes, size)), '\0');
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  const ssize_t count = ::pread(descriptor, end.data(), end.size(), size - static_cast<std::int64_t>(end.size()));
  ::close(descriptor);
  end.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return end;
}

}  // namespace

RowSource::RowSource(const hdf5::File& file, const std::string& dataset, DType dtype, std::int64_t memory_limit)
    : path_(file.path()), dataset_(dataset), place_(path_ + ":" + dataset), dtype_(dtype) {
  const hdf5::DatasetInfo info = file.info(dataset);
  const std::int64_t rows = info.dims.empty() ? 0 : info.dims.front();
  if (info.size() < 1) fail_usage("{}: shape {} has no samples", place_, info.shape_text());
  row_elements_ = info.size() / rows;
  row_bytes_ = static_cast<std::size_t>(row_elements_) * dtype_size(dtype);
  from_uint16_ = info.uint16_offset >= 0 && dtype == DType::kF32;
  if (from_uint16_ || (info.file_offset >= 0 && info.dtype == dtype)) {
    file_offset_ = from_uint16_ ? info.uint16_offset : info.file_offset;
    if (from_uint16_) row_bytes_ = static_cast<std::size_t>(row_elements_) * sizeof(std::uint16_t);
    open();
  } else if (rows <= memory_limit / static_cast<std::int64_t>(row_bytes_)) {
    memory_.resize(static_cast<std::size_t>(rows) * row_bytes_);
    hdf5::RowReader(file, dataset).read(0, rows, dtype, memory_.data());
    open_ = true;
  } else {
    open();
  }
}

RowSource::RowSource(const std::string& path, ByteUnpacker& packed)
    : path_(path), dataset_(packed.text()), place_(path_ + ":" + dataset_) {
  dtype_ = static_cast<DType>(packed.number());
  row_elements_ = packed.number();
  row_bytes_ = static_cast<std::size_t>(packed.number());
  file_offset_ = packed.number();
  file_bytes_ = packed.number();
  file_end_ = packed.text();
  from_uint16_ = packed.number() != 0;
  memory_ = packed.array<std::byte>();
  open_ = !memory_.empty();
}

void RowSource::pack(BytePacker& packer) const {
  struct stat status {};
  const bool known = ::stat(path_.c_str(), &status) == 0;
  packer.text(dataset_);
  packer.number(static_cast<std::int64_t>(dtype_));
  packer.number(row_elements_);
  packer.number(static_cast<std::int64_t>(row_bytes_));
  packer.number(file_offset_);
  packer.number(known ? status.st_size : -1);
  packer.text(known ? end_of(path_, status.st_size) : "");
  packer.number(from_uint16_ ? 1 : 0);
  packer.array(memory_);
}

RowSource::~RowSource() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RowSource::open() const {
  if (open_) return;
  const std::lock_guard guard(opening_);
  if (open_) return;
  if (file_bytes_ >= 0) check_file();
  if (file_offset_ >= 0) {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_io("cannot read {}: {}", path_, std::strerror(errno));
  } else {
    file_ = std::make_unique<hdf5::File>(path_);
    reader_ = std::make_unique<hdf5::RowReader>(*file_, dataset_);
  }
  open_ = true;
}

// Whether it is the file from which rank 0 has names, labels and layout.
void RowSource::check_file() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail_io("cannot read {}: {}", path_, std::strerror(errno));
  if (status.st_size != file_bytes_) {
    fail_io("{}: {} bytes on {}, {} where rank 0 reads it (every node needs the same file)", path_, status.st_size,
            host_name(), file_bytes_);
  }
  if (end_of(path_, file_bytes_) != file_end_) {
    fail_io("{}: the file on {} is not the one that rank 0 reads, though as long (every node needs the same file)",
            path_, host_name());
  }
}

void RowSource::pread_rows(std::int64_t first, std::size_t bytes, std::byte* out) const {
  std::size_t done = 0;
  while (done < bytes) {
    const auto offset = file_offset_ + first * static_cast<std::int64_t>(row_bytes_) + static_cast<std::int64_t>(done);
    const ssize_t count = ::pread(descriptor_, out + done, bytes - done, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail_io("{}: cannot read row {}: {}", place_, first, count == 0 ? "the file ends early" : std::strerror(errno));
    }
    done += static_cast<std::size_t>(count);
  }
}

void RowSource::read(std::int64_t first, void* out, std::int64_t count) const {
  open();
  const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes_;
  if (from_uint16_) {
    thread_local std::vector<std::uint16_t> elements;  // grows once per thread
    elements.resize(static_cast<std::size_t>(count * row_elements_));
    pread_rows(first, bytes, reinterpret_cast<std::byte*>(elements.data()));
    std::copy(elements.begin(), elements.end(), static_cast<float*>(out));
  } else if (file_offset_ >= 0) {
    pread_rows(first, bytes, static_cast<std::byte*>(out));
  } else if (!memory_.empty()) {
    std::memcpy(out, memory_.data() + static_cast<std::size_t>(first) * row_bytes_, bytes);
  } else {
    try {
      reader_->read(first, count, dtype_, out);
    } catch (const Error& error) {
      fail_running_as(error, fmt::format("row {}: {}", first, error.what()));
    }
  }
}

}  // namespace convoy
