// SPDX-License-Identifier: Apache-2.0
#include "io/pack/data_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "io/files/copy_range.h"
#include "io/files/crc32c.h"
#include "io/hdf5/checksum_trailer.h"
#include "io/hdf5/hdf5_check.h"
#include "io/hdf5/sample_checksums.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

using hdf5::Handle;

// All groups and headers are in the first block, so that nothing comes between the bulk data sets behind it.
constexpr hsize_t kMetadataBytes = 1 << 16;

std::int64_t samples_of(const DataFileGroup& group) { return static_cast<std::int64_t>(group.labels.size()); }

std::int64_t bytes_of(const DataFileFrame& frame, const DataFileGroup& group) {
  if (frame.image.empty()) return group.offsets.back();
  return std::accumulate(frame.image.begin(), frame.image.end(), samples_of(group) * pixel_bytes(frame.type),
                         std::multiplies<>());
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
  Handle dataset = create(file, name, H5T_STD_I64LE, {values.size()}, place);
  CONVOY_HDF5(H5Dwrite(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), place);
  CONVOY_HDF5(H5Dclose(dataset.release()), place);  // a few numbers are written only now
}

void write_checksums(const Handle& file, const DataFileGroup& group, const std::string& place) {
  std::vector<std::uint32_t> values;
  values.reserve(group.labels.size());
  for (std::size_t i = 0; i < group.labels.size(); ++i) {
    values.push_back(sample_checksum(group.checksums[i], group.labels[i]));
  }
  Handle dataset = create(file, group.path + "/" + SampleChecksums::kName, H5T_STD_U32LE, {group.labels.size()}, place);
  CONVOY_HDF5(H5Dwrite(dataset.id(), H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), place);
  CONVOY_HDF5(H5Dclose(dataset.release()), place);
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
  const hid_t type = frame.type == PixelType::kUint8    ? H5T_STD_U8LE
                     : frame.type == PixelType::kUint16 ? H5T_STD_U16LE
                                                        : H5T_IEEE_F32LE;
  const Handle dataset = create(file, name, type, extents, place);
  const haddr_t at = H5Dget_offset(dataset.id());
  if (at == HADDR_UNDEF) fail("{}: HDF5 gives {} no place", place, name);
  return static_cast<std::int64_t>(at);
}

// Gives the byte at which the samples start.
std::int64_t write_frame(const Handle& file, const DataFileFrame& frame, const std::string& place) {
  for (const DataFileGroup& group : frame.groups) {
    if (!group.path.empty()) create_group(file, group.path, place);
    if (frame.image.empty()) create_group(file, group.path + "/jpeg", place);
  }
  std::int64_t start = -1, end = -1;
  for (const DataFileGroup& group : frame.groups) {
    const std::int64_t at = create_bulk(file, frame, group, place);
    if (start < 0) start = end = at;
    if (at != end) fail("{}: HDF5 leaves a gap between the groups", place);
    end += bytes_of(frame, group);
  }
  for (const DataFileGroup& group : frame.groups) {
    write_numbers(file, group.path + "/labels", group.labels, place);
    if (frame.image.empty()) write_numbers(file, group.path + "/jpeg/offsets", group.offsets, place);
    write_checksums(file, group, place);
    if (frame.class_names.empty()) continue;
    hdf5::put_strings(file.id(), place, group.path.empty() ? "/" : group.path, "class_names", frame.class_names);
  }
  if (frame.mean.empty()) return start;
  const std::string pixels = frame.groups.front().path + (frame.image.empty() ? "/jpeg" : "/images");
  hdf5::put_numbers(file.id(), place, pixels, "mean", frame.mean);
  hdf5::put_numbers(file.id(), place, pixels, "std", frame.deviation);
  return start;
}

}  // namespace

std::int64_t DataFileFrame::bulk_bytes() const {
  std::int64_t bytes = 0;
  for (const DataFileGroup& group : groups) bytes += bytes_of(*this, group);
  return bytes;
}

std::uint32_t DataFileFrame::bulk_checksum() const {
  std::uint32_t checksum = 0;
  for (const DataFileGroup& group : groups) {
    const std::int64_t size = group.labels.empty() ? 0 : bytes_of(*this, group) / samples_of(group);  // of an image
    for (std::size_t i = 0; i < group.checksums.size(); ++i) {
      const std::int64_t bytes = image.empty() ? group.offsets[i + 1] - group.offsets[i] : size;
      checksum = crc32c_joined(checksum, group.checksums[i], static_cast<std::uint64_t>(bytes));
    }
  }
  return checksum;
}

FrameFile::FrameFile(const std::string& beside, const DataFileFrame& frame)
    : bulk_(frame.bulk_bytes()), bulk_checksum_(frame.bulk_checksum()), file_(beside, ".frame") {
  const auto guard = hdf5::lock();
  const Handle access = hdf5::access_list(beside);
  CONVOY_HDF5(H5Pset_meta_block_size(access.id(), kMetadataBytes), beside);
  CONVOY_HDF5(H5Pset_small_data_block_size(access.id(), 0), beside);
  const Handle creation(CONVOY_HDF5(H5Pcreate(H5P_FILE_CREATE), beside));
  CONVOY_HDF5(H5Pset_obj_track_times(creation.id(), false), beside);  // of the root group
  Handle file(H5Fcreate(file_.name().c_str(), H5F_ACC_TRUNC, creation.id(), access.id()));
  file_.drop_name();  // HDF5 has it open
  CONVOY_HDF5(file.id(), beside);
  start_ = write_frame(file, frame, beside);
  CONVOY_HDF5(H5Fflush(file.id(), H5F_SCOPE_GLOBAL), beside);
  CONVOY_HDF5(H5Fclose(file.release()), beside);
}

void FrameFile::complete(int descriptor, const std::string& path) const {
  const std::int64_t after = start_ + bulk_, end = ::lseek(file_.descriptor(), 0, SEEK_END);
  const std::uint32_t head = copy_range(file_.descriptor(), 0, start_, descriptor, 0, path);
  const std::uint32_t tail = copy_range(file_.descriptor(), after, end, descriptor, after, path);
  const std::uint32_t samples = crc32c_joined(head, bulk_checksum_, static_cast<std::uint64_t>(bulk_));
  append_trailer(descriptor, crc32c_joined(samples, tail, static_cast<std::uint64_t>(end - after)), end, path);
}

}  // namespace convoy
