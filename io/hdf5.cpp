// SPDX-License-Identifier: Apache-2.0
//
// The lock, handles, error text and attributes of hdf5.h: everything but the elements of data sets (hdf5_data.cpp).
// Relies on the C API alone. Invariant: every function that calls HDF5 holds the lock first.
#include "io/hdf5.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "io/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

// Of an attribute: more is no list of class names, and no config.
constexpr std::size_t kMostStrings = 1 << 20;
constexpr std::size_t kMostStringBytes = 1 << 16;

// Keeps the first, most specific, message of the error stack.
herr_t first_message(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// HDF5 wraps the words of the system: "... errno = 28, error message = 'No space left on device', buf = ...".
std::string plain_words(const std::string& text) {
  constexpr std::string_view kMark = "error message = '";
  const auto start = text.find(kMark);
  if (start == std::string::npos) return text;
  const auto end = text.find('\'', start + kMark.size());
  return text.substr(start + kMark.size(), end == std::string::npos ? end : end - start - kMark.size());
}

std::string attribute_place(const std::string& file, const std::string& object, const std::string& name) {
  return fmt::format("{}: attribute {} of {}", file, name, object);
}

// Writes one attribute; replaces one that is there.
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

Handle text_type(const std::string& place) {
  Handle type(CONVOY_HDF5(H5Tcopy(H5T_C_S1), place));
  CONVOY_HDF5(H5Tset_size(type.id(), H5T_VARIABLE), place);
  CONVOY_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8), place);
  return type;
}

}  // namespace

std::recursive_mutex& library_lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

std::unique_lock<std::recursive_mutex> lock() {
  std::unique_lock guard(library_lock());
  [[maybe_unused]] static const herr_t silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return guard;
}

void throw_hdf5_error(const char* call, const std::string& place) {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_message, &text);
  H5Eclear2(H5E_DEFAULT);
  const std::string_view whole(call);
  fail("{}: {} (HDF5 call {})", place, text.empty() ? "failed" : plain_words(text), whole.substr(0, whole.find('(')));
}

std::string library_version() {
  const auto guard = lock();
  unsigned major = 0, minor = 0, release = 0;
  CONVOY_HDF5(H5get_libversion(&major, &minor, &release), "HDF5");
  return fmt::format("{}.{}.{}", major, minor, release);
}

Handle::~Handle() {
  if (id_ < 0) return;
  const std::lock_guard guard(library_lock());
  if (H5Iget_type(id_) == H5I_FILE) {
    H5Fclose(id_);
  } else {
    H5Idec_ref(id_);
  }
}

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return H5T_NATIVE_FLOAT;
    case DType::kF64: return H5T_NATIVE_DOUBLE;
    case DType::kU8: return H5T_NATIVE_UINT8;
    case DType::kI64: return H5T_NATIVE_INT64;
    case DType::kBF16:
    case DType::kF16: break;
  }
  fail("HDF5 files hold no {} elements; convert to float32 first", dtype_name(dtype));
}

Handle access_list(const std::string& place) {
  Handle list(CONVOY_HDF5(H5Pcreate(H5P_FILE_ACCESS), place));
  CONVOY_HDF5(H5Pset_file_locking(list.id(), 0, 1), place);
  CONVOY_HDF5(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V18, H5F_LIBVER_LATEST), place);
  return list;
}

File::File(const std::string& path) : path_(path) {
  // The system's words are clearer than HDF5's when there is no such file, or it may not be read.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte = 0;
  const bool readable = descriptor >= 0 && ::read(descriptor, &byte, 1) >= 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!readable) fail("cannot read {}: {}", path, std::strerror(reason));

  const auto guard = lock();
  const Handle access = access_list(path);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
  if (id < 0) throw_hdf5_error("H5Fopen", path + ": not a whole HDF5 file");
  handle_ = Handle(id);
}

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
  if (count > kMostStrings || H5Tget_size(type.id()) > kMostStringBytes) fail("{} holds no list of names", place);
  std::vector<std::string> values(count);
  if (H5Tis_variable_str(type.id()) > 0) {
    // The memory type takes the file's character set: HDF5 converts none.
    std::vector<char*> pointers(count, nullptr);
    CONVOY_HDF5(H5Aread(attribute.id(), type.id(), pointers.data()), place);
    for (std::size_t i = 0; i < count; ++i) values[i] = pointers[i] != nullptr ? pointers[i] : "";
    CONVOY_HDF5(H5Dvlen_reclaim(type.id(), space.id(), H5P_DEFAULT, pointers.data()), place);
  } else {
    const std::size_t width = H5Tget_size(type.id());
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
  std::vector<const char*> pointers;
  pointers.reserve(values.size());
  for (const auto& value : values) pointers.push_back(value.c_str());
  put_attribute(file, place, object, name, type.id(), space.id(), pointers.data());
}

void FileImage::write_attribute(const std::string& object, const std::string& name,
                                const std::vector<std::string>& values) {
  const auto guard = lock();
  put_strings(handle_.id(), attribute_place(name_, object, name), object, name, values);
}

}  // namespace convoy::hdf5
