// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes attributes, and writes strings (hdf5.h). Relies on hdf5_check.h. Invariant: sizes are checked before
// memory is allocated.
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

// Limit of an attribute: lists of class names and configs are smaller.
constexpr std::size_t kMaxStrings = 1 << 20;
constexpr std::size_t kMaxNumbers = 1 << 16;
constexpr std::size_t kMaxStringBytes = 1 << 16;
constexpr std::size_t kMaxTextBytes = 64 << 20;  // of all strings of an attribute, where they have one length

std::string attribute_place(const std::string& file, const std::string& object, const std::string& name) {
  return fmt::format("{}: attribute {} of {}", file, name, object);
}

// Writes an attribute, replacing an existing one.
void put_attribute(Id file, const std::string& place, const std::string& object, const std::string& name, hid_t type,
                   hid_t space, const void* value) {
  const Handle target(CONVOY_HDF5(H5Oopen(file, object.c_str(), H5P_DEFAULT), place));
  if (CONVOY_HDF5(H5Aexists(target.id(), name.c_str()), place) > 0) {
    CONVOY_HDF5(H5Adelete(target.id(), name.c_str()), place);
  }
  const Handle attribute(
      CONVOY_HDF5(H5Acreate2(target.id(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), place));
  CONVOY_HDF5(H5Awrite(attribute.id(), type, value), place);
}

std::vector<const char*> c_strings(const std::vector<std::string>& values) {
  std::vector<const char*> pointers;
  pointers.reserve(values.size());
  for (const auto& value : values) pointers.push_back(value.c_str());
  return pointers;
}

Handle text_type(const std::string& place) {
  Handle type(CONVOY_HDF5(H5Tcopy(H5T_C_S1), place));
  CONVOY_HDF5(H5Tset_size(type.id(), H5T_VARIABLE), place);
  CONVOY_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8), place);
  return type;
}

}  // namespace

Handle File::open_attribute(const std::string& object, const std::string& name) const {
  const std::string place = attribute_place(path_, object, name);
  if (!has(object)) return {};
  const Handle target(CONVOY_HDF5(H5Oopen(id(), object.c_str(), H5P_DEFAULT), place));
  if (CONVOY_HDF5(H5Aexists(target.id(), name.c_str()), place) == 0) return {};
  return Handle(CONVOY_HDF5(H5Aopen(target.id(), name.c_str(), H5P_DEFAULT), place));
}

template <class T>
std::optional<T> File::number_attribute(const std::string& object, const std::string& name, Id type) const {
  const Handle attribute = open_attribute(object, name);
  if (attribute.id() < 0) return std::nullopt;
  const std::string place = attribute_place(path_, object, name);
  const Handle space(CONVOY_HDF5(H5Aget_space(attribute.id()), place));
  if (H5Sget_simple_extent_npoints(space.id()) != 1) fail("{} is not a single number", place);
  const Handle file_type(CONVOY_HDF5(H5Aget_type(attribute.id()), place));
  const H5T_class_t kind = H5Tget_class(file_type.id());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) fail("{} is not a number", place);
  T value{};
  CONVOY_HDF5(H5Aread(attribute.id(), type, &value), place);
  return value;
}

std::optional<std::int64_t> File::int_attribute(const std::string& object, const std::string& name) const {
  const auto guard = lock();
  return number_attribute<std::int64_t>(object, name, H5T_NATIVE_INT64);
}

std::optional<std::uint64_t> File::uint_attribute(const std::string& object, const std::string& name) const {
  const auto guard = lock();
  return number_attribute<std::uint64_t>(object, name, H5T_NATIVE_UINT64);
}

std::optional<double> File::double_attribute(const std::string& object, const std::string& name) const {
  const auto guard = lock();
  return number_attribute<double>(object, name, H5T_NATIVE_DOUBLE);
}

std::vector<std::string> File::strings_attribute(const std::string& object, const std::string& name) const {
  const auto guard = lock();
  const Handle attribute = open_attribute(object, name);
  if (attribute.id() < 0) return {};
  const std::string place = attribute_place(path_, object, name);
  const Handle type(CONVOY_HDF5(H5Aget_type(attribute.id()), place));
  if (H5Tget_class(type.id()) != H5T_STRING) fail("{} is not text", place);
  const Handle space(CONVOY_HDF5(H5Aget_space(attribute.id()), place));
  const auto count = static_cast<std::size_t>(CONVOY_HDF5(H5Sget_simple_extent_npoints(space.id()), place));
  if (count > kMaxStrings || H5Tget_size(type.id()) > kMaxStringBytes) fail("{} holds no list of names", place);
  std::vector<std::string> values(count);
  if (H5Tis_variable_str(type.id()) > 0) {
    // The memory type has the file's character set: HDF5 does not convert between them.
    std::vector<char*> pointers(count, nullptr);
    CONVOY_HDF5(H5Aread(attribute.id(), type.id(), pointers.data()), place);
    for (std::size_t i = 0; i < count; ++i) values[i] = pointers[i] != nullptr ? pointers[i] : "";
    CONVOY_HDF5(H5Dvlen_reclaim(type.id(), space.id(), H5P_DEFAULT, pointers.data()), place);
  } else {
    const std::size_t width = H5Tget_size(type.id());
    if (width * count > kMaxTextBytes) fail("{} holds no list of names: {} bytes", place, width * count);
    std::string text(width * count, '\0');
    CONVOY_HDF5(H5Aread(attribute.id(), type.id(), text.data()), place);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = text.substr(i * width, width);
      values[i].resize(std::strlen(values[i].c_str()));
    }
  }
  return values;
}

std::optional<std::string> File::string_attribute(const std::string& object, const std::string& name) const {
  const auto values = strings_attribute(object, name);
  if (values.empty()) return std::nullopt;
  return values.front();
}

std::vector<double> File::numbers_attribute(const std::string& object, const std::string& name) const {
  const auto guard = lock();
  const Handle attribute = open_attribute(object, name);
  if (attribute.id() < 0) return {};
  const std::string place = attribute_place(path_, object, name);
  const Handle type(CONVOY_HDF5(H5Aget_type(attribute.id()), place));
  if (H5Tget_class(type.id()) != H5T_FLOAT && H5Tget_class(type.id()) != H5T_INTEGER) fail("{} is no number", place);
  const Handle space(CONVOY_HDF5(H5Aget_space(attribute.id()), place));
  const auto count = static_cast<std::size_t>(CONVOY_HDF5(H5Sget_simple_extent_npoints(space.id()), place));
  if (count > kMaxNumbers) fail("{} holds {} numbers (at most {})", place, count, kMaxNumbers);
  std::vector<double> values(count);
  CONVOY_HDF5(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, values.data()), place);
  return values;
}

void FileImage::write_number(const std::string& object, const std::string& name, Id type, const void* value) {
  const std::string place = attribute_place(name_, object, name);
  const Handle space(CONVOY_HDF5(H5Screate(H5S_SCALAR), place));
  put_attribute(handle_.id(), place, object, name, type, space.id(), value);
}

void FileImage::write_attribute(const std::string& object, const std::string& name, std::int64_t value) {
  const auto guard = lock();
  write_number(object, name, H5T_NATIVE_INT64, &value);
}

void FileImage::write_attribute(const std::string& object, const std::string& name, std::uint64_t value) {
  const auto guard = lock();
  write_number(object, name, H5T_NATIVE_UINT64, &value);
}

void FileImage::write_attribute(const std::string& object, const std::string& name, double value) {
  const auto guard = lock();
  write_number(object, name, H5T_NATIVE_DOUBLE, &value);
}

void FileImage::write_attribute(const std::string& object, const std::string& name, const std::string& value) {
  const auto guard = lock();
  const std::string place = attribute_place(name_, object, name);
  const Handle type = text_type(place);
  const char* text = value.c_str();
  write_number(object, name, type.id(), &text);
}

void put_strings(Id file, const std::string& place, const std::string& object, const std::string& name,
                 const std::vector<std::string>& values) {
  const Handle type = text_type(place);
  const hsize_t count = values.size();
  const Handle space(CONVOY_HDF5(H5Screate_simple(1, &count, nullptr), place));
  put_attribute(file, place, object, name, type.id(), space.id(), c_strings(values).data());
}

void put_numbers(Id file, const std::string& place, const std::string& object, const std::string& name,
                 const std::vector<double>& values) {
  const hsize_t count = values.size();
  const Handle space(CONVOY_HDF5(H5Screate_simple(1, &count, nullptr), place));
  put_attribute(file, place, object, name, H5T_NATIVE_DOUBLE, space.id(), values.data());
}

void FileImage::write_attribute(const std::string& object, const std::string& name,
                                const std::vector<std::string>& values) {
  const auto guard = lock();
  put_strings(handle_.id(), attribute_place(name_, object, name), object, name, values);
}

void FileImage::write(const std::string& dataset, const std::vector<std::string>& values) {
  const auto guard = lock();
  const std::string place = name_ + ":" + dataset;
  const Handle type = text_type(place);
  const hsize_t count = values.size();
  const Handle space(CONVOY_HDF5(H5Screate_simple(1, &count, nullptr), place));
  const Handle handle(CONVOY_HDF5(
      H5Dcreate2(handle_.id(), dataset.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), place));
  const std::vector<const char*> pointers = c_strings(values);
  CONVOY_HDF5(H5Dwrite(handle.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()), place);
}

}  // namespace convoy::hdf5
