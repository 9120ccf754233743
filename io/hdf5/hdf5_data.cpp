// SPDX-License-Identifier: Apache-2.0
//
// Metadata and contents of data sets (hdf5.h). Relies on hdf5_check.h. Invariant: a wrong checksum is an Error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

constexpr std::int64_t kVerifyBytes = 64 << 20;  // per read in verify()
// Limits of the size of a data set, given the size of its file: deflate compresses at most 1032 to 1. Chunks that were
// never written take no space; writers omit at most the second number of bytes.
constexpr std::int64_t kMaxPacked = 1100;
constexpr std::int64_t kMaxUnwritten = std::int64_t{256} << 20;

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  return collect<std::string>(name, names);
}

herr_t collect_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
  return info->type == H5O_TYPE_DATASET ? collect_name(0, name, nullptr, names) : 0;
}

// Called before memory is allocated: the header may be damaged or hostile.
void refuse_implausible(const DatasetInfo& info, const File& file) {
  if (!info.dtype) return;
  std::int64_t bytes = 0;
  const bool large = __builtin_mul_overflow(info.size(), static_cast<std::int64_t>(dtype_size(*info.dtype)), &bytes);
  if (!large && bytes <= file.largest_plausible()) return;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file.path(), error);
  fail("{}:{}: {} {} cannot be in a file of {} bytes (damaged)", file.path(), info.path, info.type_name,
       info.shape_text(), error ? 0 : size);
}

std::string joined(const std::string& group, const std::string& name) {
  if (name == ".") return group;
  return group.back() == '/' ? group + name : group + "/" + name;
}

// Sets type_name and dtype; returns whether the elements are stored exactly as dtype in memory.
bool describe_type(hid_t type, DatasetInfo& info) {
  const std::size_t bits = H5Tget_size(type) * 8;
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      info.type_name = fmt::format("{}int{}", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits);
      info.dtype = H5Tequal(type, H5T_NATIVE_UINT8) > 0 ? DType::kU8 : DType::kI64;
      break;
    case H5T_FLOAT:
      info.type_name = fmt::format("float{}", bits);
      info.dtype = bits > 32 ? DType::kF64 : DType::kF32;
      break;
    case H5T_STRING: info.type_name = "string"; return false;
    case H5T_COMPOUND: info.type_name = "compound"; return false;
    case H5T_ENUM: info.type_name = "enum"; return false;
    default: info.type_name = "other"; return false;
  }
  return H5Tequal(type, native_type(*info.dtype)) > 0;
}

}  // namespace

std::int64_t DatasetInfo::size() const {
  std::int64_t product = 1;
  for (const auto extent : dims) {
    if (__builtin_mul_overflow(product, extent, &product)) fail("{}: shape {} is too large", path, shape_text());
  }
  return product;
}

std::string DatasetInfo::shape_text() const { return fmt::format("[{}]", fmt::join(dims, ", ")); }

std::int64_t File::largest_plausible() const {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path_, error);
  std::int64_t most = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(error ? 0 : size), kMaxPacked, &most)) return kMaxUnwritten;
  return std::max(most, kMaxUnwritten);
}

bool File::has(const std::string& object) const {
  const auto guard = lock();
  if (object == "/") return true;
  // Checks each part of the path: H5Lexists fails, rather than returns false, when a parent is missing.
  for (auto end = object.find('/', 1);; end = object.find('/', end + 1)) {
    const std::string part = object.substr(0, end);
    if (CONVOY_HDF5(H5Lexists(id(), part.c_str(), H5P_DEFAULT), path_) == 0) return false;
    if (CONVOY_HDF5(H5Oexists_by_name(id(), part.c_str(), H5P_DEFAULT), path_) == 0) return false;
    if (end == std::string::npos) return true;
  }
}

bool File::is_dataset(const std::string& object) const {
  const auto guard = lock();
  if (!has(object)) return false;
  const Handle handle(CONVOY_HDF5(H5Oopen(id(), object.c_str(), H5P_DEFAULT), path_ + ":" + object));
  return H5Iget_type(handle.id()) == H5I_DATASET;
}

std::vector<DatasetInfo> File::datasets(const std::string& group) const {
  const auto guard = lock();
  std::vector<std::string> names;
  CONVOY_HDF5(H5Ovisit_by_name2(id(), group.c_str(), H5_INDEX_NAME, H5_ITER_INC, collect_dataset, &names,
                                H5O_INFO_BASIC, H5P_DEFAULT),
              path_ + ":" + group);
  std::vector<DatasetInfo> result;
  result.reserve(names.size());
  for (const auto& name : names) result.push_back(info(joined(group, name)));
  return result;
}

std::vector<std::string> File::groups(const std::string& group) const {
  const auto guard = lock();
  const std::string place = path_ + ":" + group;
  std::vector<std::string> names;
  const Handle handle(CONVOY_HDF5(H5Gopen2(id(), group.c_str(), H5P_DEFAULT), place));
  CONVOY_HDF5(H5Literate(handle.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names), place);
  std::erase_if(names, [&](const std::string& name) { return is_dataset(joined(group, name)); });
  return names;
}

DatasetInfo File::info(const std::string& dataset) const {
  const auto guard = lock();
  const std::string place = path_ + ":" + dataset;
  const Handle handle(CONVOY_HDF5(H5Dopen2(id(), dataset.c_str(), H5P_DEFAULT), place));
  const Handle space(CONVOY_HDF5(H5Dget_space(handle.id()), place));
  const Handle type(CONVOY_HDF5(H5Dget_type(handle.id()), place));
  const Handle list(CONVOY_HDF5(H5Dget_create_plist(handle.id()), place));
  DatasetInfo result;
  result.path = dataset;
  const int rank = CONVOY_HDF5(H5Sget_simple_extent_ndims(space.id()), place);
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  CONVOY_HDF5(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), place);
  result.dims.assign(extents.begin(), extents.end());
  const bool raw = describe_type(type.id(), result);
  const int filters = CONVOY_HDF5(H5Pget_nfilters(list.id()), place);
  for (unsigned i = 0; i < static_cast<unsigned>(filters); ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    result.checksummed |=
        H5Pget_filter2(list.id(), i, &flags, &values, nullptr, 0, nullptr, nullptr) == H5Z_FILTER_FLETCHER32;
  }
  const H5D_layout_t layout = H5Pget_layout(list.id());
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(extents.size());
    CONVOY_HDF5(H5Pget_chunk(list.id(), rank, chunk.data()), place);
    result.chunk_rows = static_cast<std::int64_t>(chunk.front());
  }
  const bool uint16 = H5Tequal(type.id(), H5T_NATIVE_UINT16) > 0;
  if (layout == H5D_CONTIGUOUS && (raw || uint16)) {
    const haddr_t offset = H5Dget_offset(handle.id());
    if (offset != HADDR_UNDEF) (raw ? result.file_offset : result.uint16_offset) = static_cast<std::int64_t>(offset);
  }
  H5Eclear2(H5E_DEFAULT);
  refuse_implausible(result, *this);
  return result;
}

HostTensor File::read(const std::string& dataset, const std::string& name) const {
  const auto guard = lock();
  const std::string place = path_ + ":" + dataset;
  const DatasetInfo what = info(dataset);
  if (!what.dtype) fail("{}: holds {} elements; only integers and floats can be read", place, what.type_name);
  if (what.dims.size() > Shape::kMaxRank) {
    fail("{}: shape {} has more than {} axes", place, what.shape_text(), int{Shape::kMaxRank});
  }
  (void)what.size();  // throws when it overflows
  HostTensor tensor;
  try {
    tensor = HostTensor(name, Shape(what.dims.data(), static_cast<int>(what.dims.size())), *what.dtype);
  } catch (const std::exception&) {
    fail("{}: shape {} does not fit into memory", place, what.shape_text());
  }
  const Handle handle(CONVOY_HDF5(H5Dopen2(id(), dataset.c_str(), H5P_DEFAULT), place));
  CONVOY_HDF5(H5Dread(handle.id(), native_type(*what.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes.data()),
              place);
  return tensor;
}

void File::verify(const DatasetInfo& what) const {
  if (!what.dtype || what.size() == 0) return;
  if (what.dims.empty()) {
    (void)read(what.path, "");
    return;
  }
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, what.size() / what.dims[0] * static_cast<std::int64_t>(dtype_size(*what.dtype)));
  std::int64_t rows = std::max<std::int64_t>(1, kVerifyBytes / row_bytes);
  if (what.chunk_rows > 0) rows = std::max(what.chunk_rows, rows / what.chunk_rows * what.chunk_rows);
  rows = std::min(rows, what.dims[0]);
  std::vector<std::byte> buffer(static_cast<std::size_t>(rows * row_bytes));
  const RowReader reader(*this, what.path);
  try {
    for (std::int64_t first = 0; first < what.dims[0]; first += rows) {
      reader.read(first, std::min(rows, what.dims[0] - first), *what.dtype, buffer.data());
    }
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {  // HDF5 1.14 says only that a filter failed
    if (!what.checksummed) throw;
    fail("{}; the data cannot be read, or its checksum (Fletcher32) does not hold", error.what());
  }
}

RowReader::RowReader(const File& file, const std::string& dataset) : place_(file.path() + ":" + dataset) {
  const auto guard = lock();
  dims_ = file.info(dataset).dims;
  if (dims_.empty()) fail("{}: a scalar has no rows", place_);
  dataset_ = Handle(CONVOY_HDF5(H5Dopen2(file.id(), dataset.c_str(), H5P_DEFAULT), place_));
}

void RowReader::read(std::int64_t first, std::int64_t count, DType dtype, void* out) const {
  const auto guard = lock();
  std::vector<hsize_t> start(dims_.size(), 0);
  std::vector<hsize_t> extent(dims_.begin(), dims_.end());
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  const Handle file_space(CONVOY_HDF5(H5Dget_space(dataset_.id()), place_));
  CONVOY_HDF5(H5Sselect_hyperslab(file_space.id(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr),
              place_);
  const Handle memory_space(
      CONVOY_HDF5(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), place_));
  CONVOY_HDF5(H5Dread(dataset_.id(), native_type(dtype), memory_space.id(), file_space.id(), H5P_DEFAULT, out), place_);
}

}  // namespace convoy::hdf5
