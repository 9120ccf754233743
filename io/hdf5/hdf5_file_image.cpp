// SPDX-License-Identifier: Apache-2.0
//
// The file image of hdf5.h but for its attributes (hdf5.cpp). Relies on hdf5_check.h, and on fletcher32.h for the
// checksums of chunks, which go past the library's filters. Invariant: what write() stores is read back bit for bit by
// every HDF5 program.
#include <algorithm>
#include <cstring>

#include "io/hdf5/fletcher32.h"
#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

constexpr std::int64_t kChunkBytes = 1 << 20;  // of a written data set; whole arrays below that. Stays in a cache

std::vector<hsize_t> extents_of(const Shape& shape) {
  std::vector<hsize_t> extents(static_cast<std::size_t>(shape.rank()));
  for (int axis = 0; axis < shape.rank(); ++axis)
    extents[static_cast<std::size_t>(axis)] = static_cast<hsize_t>(shape[axis]);
  return extents;
}

// Whole rows of at most kChunkBytes, or parts of one row when a row is larger.
std::vector<hsize_t> chunk_shape(const Shape& shape, std::size_t element) {
  std::vector<hsize_t> chunk = extents_of(shape);
  hsize_t bytes = static_cast<hsize_t>(shape.size()) * element;
  for (auto& extent : chunk) {
    const hsize_t pieces = std::min(extent, (bytes + kChunkBytes - 1) / kChunkBytes);
    bytes /= extent;
    extent = (extent + pieces - 1) / pieces;
    bytes *= extent;
    if (extent > 1) break;
  }
  return chunk;
}

// As the library's own filter would write them, but with the checksum taken while the chunk is being copied: HDF5's
// filter goes over the data word by word. A chunk is a run of the tensor (chunk_shape), the last one filled up.
void write_chunks(const Handle& dataset, std::span<const std::byte> bytes, const std::vector<hsize_t>& extents,
                  const std::vector<hsize_t>& chunk, std::size_t element, std::vector<std::byte>& filtered,
                  const std::string& place) {
  std::size_t chunk_bytes = element;
  for (const auto extent : chunk) chunk_bytes *= extent;
  filtered.resize(chunk_bytes + sizeof(std::uint32_t));
  std::vector<hsize_t> at(extents.size(), 0);
  // Within the axis that is cut; the axes before it are cut to 1, those behind it are whole.
  const auto split = static_cast<std::size_t>(
      std::find_if(chunk.begin(), chunk.end(), [](hsize_t extent) { return extent > 1; }) - chunk.begin());
  const std::size_t axis = std::min(split, chunk.size() - 1);
  const std::size_t slice = chunk_bytes / chunk[axis];
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(chunk[axis], extents[axis] - at[axis]) * slice;
    std::copy_n(bytes.begin(), size, filtered.begin());
    std::fill(filtered.begin() + static_cast<std::ptrdiff_t>(size), filtered.end(), std::byte{0});
    const std::uint32_t checksum = fletcher32(std::span(filtered).first(chunk_bytes));
    std::memcpy(filtered.data() + chunk_bytes, &checksum, sizeof checksum);  // little-endian, as in the file
    CONVOY_HDF5(H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, at.data(), filtered.size(), filtered.data()), place);
    bytes = bytes.subspan(size);
    for (std::size_t i = axis + 1; i-- > 0;) {  // the next chunk
      at[i] += chunk[i];
      if (at[i] < extents[i]) break;
      at[i] = 0;
    }
  }
}

}  // namespace

FileImage::FileImage(std::string name, std::size_t expected_bytes, FileImageBuffer* memory) : name_(std::move(name)) {
  const auto guard = lock();
  const Handle access = access_list(name_);
  // Steps of a sixteenth: little is wasted at the end, and little is copied on the way.
  const std::size_t step = std::max<std::size_t>(64 << 10, expected_bytes / 16);
  CONVOY_HDF5(H5Pset_fapl_core(access.id(), step, 0), name_);
  if (memory != nullptr) {
    static_cast<void>(memory->grow(expected_bytes + step));  // moving later costs time; HDF5 asks again
    attach_memory(access.id(), *memory, name_);
  }
  // The superblock of HDF5 1.8: unlike that of 1.10, it has no mark "open for writing", which an image would keep.
  CONVOY_HDF5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), name_);
  // The memory driver first looks for a file of this name and for an open image of this name; there must be neither.
  static std::int64_t images = 0;
  const std::string unused = fmt::format("/dev/null/image-{}", images++);
  handle_ = Handle(CONVOY_HDF5(H5Fcreate(unused.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), name_));
  // All else in the format of 1.10: there the index of chunks is checksummed, too. In that of 1.8, one changed bit in
  // it makes a chunk read as zeros.
  CONVOY_HDF5(H5Fset_libver_bounds(handle_.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), name_);
}

void FileImage::create_group(const std::string& path) {
  const auto guard = lock();
  const std::string place = name_ + ":" + path;
  for (auto end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (CONVOY_HDF5(H5Lexists(handle_.id(), part.c_str(), H5P_DEFAULT), place) == 0) {
      const Handle group(
          CONVOY_HDF5(H5Gcreate2(handle_.id(), part.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), place));
    }
    if (end == std::string::npos) return;
  }
}

void FileImage::write(const std::string& dataset, const HostTensor& tensor) {
  const auto guard = lock();
  const std::string place = name_ + ":" + dataset;
  const std::size_t element = dtype_size(tensor.dtype);
  if (tensor.shape.size() < 1) fail("{}: shape {} has no elements", place, tensor.shape.str());
  if (tensor.bytes.size() != static_cast<std::size_t>(tensor.shape.size()) * element) {
    fail("{}: {} bytes for shape {} of {}", place, tensor.bytes.size(), tensor.shape.str(), dtype_name(tensor.dtype));
  }
  if (const auto slash = dataset.rfind('/'); slash > 0) create_group(dataset.substr(0, slash));
  const hid_t type = native_type(tensor.dtype);
  const Handle list(CONVOY_HDF5(H5Pcreate(H5P_DATASET_CREATE), place));
  const auto create = [&](const Handle& space) {
    return Handle(CONVOY_HDF5(
        H5Dcreate2(handle_.id(), dataset.c_str(), type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), place));
  };
  if (tensor.shape.rank() == 0) {
    CONVOY_HDF5(H5Pset_layout(list.id(), H5D_COMPACT), place);
    const Handle handle = create(Handle(CONVOY_HDF5(H5Screate(H5S_SCALAR), place)));
    CONVOY_HDF5(H5Dwrite(handle.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes.data()), place);
    return;
  }
  const std::vector<hsize_t> extents = extents_of(tensor.shape);
  const std::vector<hsize_t> chunk = chunk_shape(tensor.shape, element);
  CONVOY_HDF5(H5Pset_chunk(list.id(), tensor.shape.rank(), chunk.data()), place);
  CONVOY_HDF5(H5Pset_fletcher32(list.id()), place);
  const Handle handle =
      create(Handle(CONVOY_HDF5(H5Screate_simple(tensor.shape.rank(), extents.data(), nullptr), place)));
  write_chunks(handle, tensor.bytes, extents, chunk, element, chunk_, place);
}

std::span<const std::byte> FileImage::bytes() {
  const auto guard = lock();
  CONVOY_HDF5(H5Fflush(handle_.id(), H5F_SCOPE_LOCAL), name_);
  const auto size = CONVOY_HDF5(H5Fget_file_image(handle_.id(), nullptr, 0), name_);
  void* memory = nullptr;  // the driver gives the address of its own pointer
  CONVOY_HDF5(H5Fget_vfd_handle(handle_.id(), H5P_DEFAULT, &memory), name_);
  return {*static_cast<const std::byte* const*>(memory), static_cast<std::size_t>(size)};
}

}  // namespace convoy::hdf5
