// SPDX-License-Identifier: Apache-2.0
//
// The file image of hdf5.h, except its attributes (hdf5_attributes.cpp).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

std::vector<hsize_t> extents_of(const Shape& shape) {
  std::vector<hsize_t> extents(static_cast<std::size_t>(shape.rank()));
  for (int axis = 0; axis < shape.rank(); ++axis)
    extents[static_cast<std::size_t>(axis)] = static_cast<hsize_t>(shape[axis]);
  return extents;
}

}  // namespace

FileImage::FileImage(std::string name, std::size_t expected_bytes, FileImageBuffer* memory) : name_(std::move(name)) {
  const auto guard = lock();
  const Handle access = access_list(name_);
  // Growth by a sixteenth wastes little memory and copies little.
  const std::size_t step = std::max<std::size_t>(64 << 10, expected_bytes / 16);
  CONVOY_HDF5(H5Pset_fapl_core(access.id(), step, 0), name_);
  if (memory != nullptr) {
    static_cast<void>(memory->grow(expected_bytes + step));  // on failure HDF5 asks again, and moving costs time
    attach_memory(access.id(), *memory, name_);
  }
  // The superblock of HDF5 1.8 has no flag "open for writing", which would remain set in the image.
  CONVOY_HDF5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), name_);
  // The memory driver first looks for a file of this name and for an open image of this name; there must be neither.
  static std::int64_t images = 0;
  const std::string unused = fmt::format("/dev/null/image-{}", images++);
  handle_ = Handle(CONVOY_HDF5(H5Fcreate(unused.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), name_));
}

FileImage::FileImage(std::string name, const std::string& path) : name_(std::move(name)) {
  const auto guard = lock();
  const Handle access = access_list(name_);
  CONVOY_HDF5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), name_);
  handle_ = Handle(CONVOY_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), name_));
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
  const Handle handle = create_dataset(dataset, tensor.shape, tensor.dtype, false);
  CONVOY_HDF5(H5Dwrite(handle.id(), native_type(tensor.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes.data()),
              place);
}

Handle FileImage::create_dataset(const std::string& dataset, const Shape& shape, DType dtype, bool reserved) {
  const std::string place = name_ + ":" + dataset;
  if (const auto slash = dataset.rfind('/'); slash > 0) create_group(dataset.substr(0, slash));
  const Handle list(CONVOY_HDF5(H5Pcreate(H5P_DATASET_CREATE), place));
  const bool scalar = shape.rank() == 0;
  CONVOY_HDF5(H5Pset_layout(list.id(), scalar ? H5D_COMPACT : H5D_CONTIGUOUS), place);
  if (reserved) {
    CONVOY_HDF5(H5Pset_alloc_time(list.id(), H5D_ALLOC_TIME_EARLY), place);
    CONVOY_HDF5(H5Pset_fill_time(list.id(), H5D_FILL_TIME_NEVER), place);
  }
  const std::vector<hsize_t> extents = extents_of(shape);
  const Handle space(
      CONVOY_HDF5(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(shape.rank(), extents.data(), nullptr), place));
  return Handle(CONVOY_HDF5(
      H5Dcreate2(handle_.id(), dataset.c_str(), native_type(dtype), space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
      place));
}

std::int64_t FileImage::reserve(const std::string& dataset, const Shape& shape, DType dtype) {
  const auto guard = lock();
  const Handle handle = create_dataset(dataset, shape, dtype, true);
  const haddr_t at = H5Dget_offset(handle.id());
  if (at == HADDR_UNDEF) fail("{}:{}: HDF5 gives it no place", name_, dataset);
  return static_cast<std::int64_t>(at);
}

void FileImage::close() {
  const auto guard = lock();
  CONVOY_HDF5(H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL), name_);
  CONVOY_HDF5(H5Fclose(handle_.release()), name_);
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
