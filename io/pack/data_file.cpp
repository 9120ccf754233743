// SPDX-License-Identifier: Apache-2.0
#include "io/pack/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>

#include "io/files/atomic_file.h"
#include "io/hdf5/hdf5_check.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using hdf5::Handle;

// All groups and headers are in the first block, so that nothing comes between the bulk data sets behind it.
constexpr hsize_t kMetadataBytes = 1 << 16;

std::int64_t samples_of(const DataFileGroup& group) { return static_cast<std::int64_t>(group.labels.size()); }

std::int64_t bytes_of(const DataFileFrame& frame, const DataFileGroup& group) {
  if (frame.image.empty()) return group.offsets.back();
  return std::accumulate(frame.image.begin(), frame.image.end(), samples_of(group), std::multiplies<>());
}

Handle create(const Handle& file, const std::string& name, hid_t type, const std::vector<hsize_t>& extents,
              const std::string& place) {
  const Handle list(CONVOY_HDF5(H5Pcreate(H5P_DATASET_CREATE), place));
  CONVOY_HDF5(H5Pset_layout(list.id(), H5D_CONTIGUOUS), place);
  CONVOY_HDF5(H5Pset_alloc_time(list.id(), H5D_ALLOC_TIME_EARLY), place);
  CONVOY_HDF5(H5Pset_fill_time(list.id(), H5D_FILL_TIME_NEVER), place);
  CONVOY_HDF5(H5Pset_obj_track_times(list.id(), false), place);
  const Handle space(CONVOY_HDF5(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), place));
  return Handle(
      CONVOY_HDF5(H5Dcreate2(file.id(), name.c_str(), type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), place));
}

// Neither these nor data sets note when they were made: equal samples give equal files.
void create_group(const Handle& file, const std::string& path, const std::string& place) {
  const Handle list(CONVOY_HDF5(H5Pcreate(H5P_GROUP_CREATE), place));
  CONVOY_HDF5(H5Pset_obj_track_times(list.id(), false), place);
  const Handle group(CONVOY_HDF5(H5Gcreate2(file.id(), path.c_str(), H5P_DEFAULT, list.id(), H5P_DEFAULT), place));
}

void write_numbers(const Handle& file, const std::string& name, const std::vector<std::int64_t>& values,
                   const std::string& place) {
  const Handle dataset = create(file, name, H5T_STD_I64LE, {values.size()}, place);
  CONVOY_HDF5(H5Dwrite(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), place);
}

std::int64_t create_bulk(const Handle& file, const DataFileFrame& frame, const DataFileGroup& group,
                         const std::string& place) {
  std::vector<hsize_t> extents;
  if (frame.image.empty()) {
    extents.push_back(static_cast<hsize_t>(group.offsets.back()));
  } else {
    extents.push_back(group.labels.size());
    extents.insert(extents.end(), frame.image.begin(), frame.image.end());
  }
  const std::string name = group.path + (frame.image.empty() ? "/jpeg/bytes" : "/images");
  const Handle dataset = create(file, name, H5T_STD_U8LE, extents, place);
  const haddr_t at = H5Dget_offset(dataset.id());
  if (at == HADDR_UNDEF) fail("{}: HDF5 gives {} no place", place, name);
  return static_cast<std::int64_t>(at);
}

void copy_range(int from, std::int64_t first, std::int64_t last, int to, const std::string& path) {
  std::vector<std::byte> buffer(1 << 20);
  while (first < last) {
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(last - first, 1 << 20));
    const ssize_t count = ::pread(from, buffer.data(), wanted, first);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_io("cannot write {}: its frame ends early", path);
    const std::span<const std::byte> piece(buffer.data(), static_cast<std::size_t>(count));
    if (const int reason = pwrite_all(to, piece, first); reason != 0) {
      fail_io("cannot write {}: {}", path, std::strerror(reason));
    }
    first += count;
  }
}

}  // namespace

std::int64_t DataFileFrame::bulk_bytes() const {
  std::int64_t bytes = 0;
  for (const DataFileGroup& group : groups) bytes += bytes_of(*this, group);
  return bytes;
}

std::int64_t write_frame(const std::string& path, const DataFileFrame& frame) {
  const auto guard = hdf5::lock();
  const Handle access = hdf5::access_list(path);
  CONVOY_HDF5(H5Pset_meta_block_size(access.id(), kMetadataBytes), path);
  CONVOY_HDF5(H5Pset_small_data_block_size(access.id(), 0), path);
  const Handle creation(CONVOY_HDF5(H5Pcreate(H5P_FILE_CREATE), path));
  CONVOY_HDF5(H5Pset_obj_track_times(creation.id(), false), path);  // of the root group
  const Handle file(CONVOY_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), path));
  for (const DataFileGroup& group : frame.groups) {
    if (!group.path.empty()) create_group(file, group.path, path);
    if (frame.image.empty()) create_group(file, group.path + "/jpeg", path);
  }
  std::int64_t start = -1, end = -1;
  for (const DataFileGroup& group : frame.groups) {
    const std::int64_t at = create_bulk(file, frame, group, path);
    if (start < 0) start = end = at;
    if (at != end) fail("{}: HDF5 leaves a gap between the groups", path);
    end += bytes_of(frame, group);
  }
  for (const DataFileGroup& group : frame.groups) {
    write_numbers(file, group.path + "/labels", group.labels, path);
    if (frame.image.empty()) write_numbers(file, group.path + "/jpeg/offsets", group.offsets, path);
    if (frame.class_names.empty()) continue;
    hdf5::put_strings(file.id(), path, group.path.empty() ? "/" : group.path, "class_names", frame.class_names);
  }
  CONVOY_HDF5(H5Fflush(file.id(), H5F_SCOPE_GLOBAL), path);
  return start;
}

void copy_around_bulk(const std::string& frame_path, std::int64_t start, std::int64_t bulk, int descriptor,
                      const std::string& path) {
  const int frame = ::open(frame_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (frame < 0) fail_io("cannot read {}: {}", frame_path, std::strerror(errno));
  struct Close {
    int number;
    ~Close() { ::close(number); }
  } const closing{frame};
  copy_range(frame, 0, start, descriptor, path);
  copy_range(frame, start + bulk, ::lseek(frame, 0, SEEK_END), descriptor, path);
}

}  // namespace convoy
