// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files as RAII objects that throw Error. The C API is not visible in this header (see hdf5_check.h).
//
// The HDF5 library of the distributions is not thread-safe, and loader threads, a checkpoint thread and the main thread
// use it. Each function here takes one process-wide lock. Invariant: no HDF5 call is made without it.
//
// Files are read from disk and written to an image in memory, which system calls write to disk: a full disk never
// leaves the library in an undefined state, and the lock is not held during slow disk output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/hdf5/file_image_buffer.h"
#include "layers/base/host_tensor.h"
#include "layers/base/system_error.h"

namespace convoy::hdf5 {

/// hid_t of HDF5 1.10 and later.
using Id = std::int64_t;

/// The lock of the library. Recursive, so that functions here may call each other.
[[nodiscard]] std::recursive_mutex& library_lock();

/// An open object (file, group, data set, type, ...); the last owner closes it. Movable, not copyable.
class Handle {
 public:
  Handle() = default;
  explicit Handle(Id id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle();
  [[nodiscard]] Id id() const { return id_; }
  /// The caller closes it.
  [[nodiscard]] Id release() { return std::exchange(id_, -1); }

 private:
  Id id_ = -1;
};

/// Metadata of a data set.
struct DatasetInfo {
  std::string path;                ///< "/model/conv1/weight"
  std::vector<std::int64_t> dims;  ///< empty for a scalar
  std::string type_name;           ///< as in the file: "float32", "int16", "string", ...
  std::optional<DType> dtype;   ///< what read() gives (small integers: int64; float16: float32); empty: cannot be read
  bool checksummed = false;     ///< carries Fletcher32
  std::int64_t chunk_rows = 0;  ///< extent of a chunk along the first axis; 0: not chunked
  /// Offset in the file of the raw row-major elements of `dtype`; -1 when they are not stored so (chunked, compressed,
  /// another byte order, a type that needs conversion).
  std::int64_t file_offset = -1;
  std::int64_t uint16_offset = -1;  ///< the same of uint16, which read() gives as int64

  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::string shape_text() const;  ///< "[1437, 8, 8, 1]"
};

/// Whether the structure of a file can be trusted: its checksum trailer has been verified (checksum_trailer.h).
enum class Trust { kUntrusted, kTrusted };

/// A file open for reading. Opening does not lock the file, so that shared file systems without locks work.
class File {
 public:
  /// Validates an untrusted file in a child process first (validation.h). Throws an Error when it cannot be opened, and
  /// a usage Error when it refers to other files, trusted or not (outside_references.h).
  explicit File(const std::string& path, Trust origin = Trust::kUntrusted);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Id id() const { return handle_.id(); }
  [[nodiscard]] bool has(const std::string& object) const;
  [[nodiscard]] bool is_dataset(const std::string& object) const;
  /// Every data set at or below `group`, ordered by path.
  [[nodiscard]] std::vector<DatasetInfo> datasets(const std::string& group = "/") const;
  /// Names of the groups directly in `group`, in order.
  [[nodiscard]] std::vector<std::string> groups(const std::string& group) const;
  [[nodiscard]] DatasetInfo info(const std::string& dataset) const;
  /// Bytes of elements that can be in a file of this size, compressed as well as possible.
  [[nodiscard]] std::int64_t largest_plausible() const;
  /// The data set as a tensor called `name`. Throws an Error on a wrong checksum.
  [[nodiscard]] HostTensor read(const std::string& dataset, const std::string& name) const;
  /// Reads the data set in pieces to verify all checksums. Throws an Error when one is wrong.
  void verify(const DatasetInfo& info) const;

  /// Attributes of `object` ("/" is the root); empty when there is no attribute of that name.
  [[nodiscard]] std::optional<std::int64_t> int_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::optional<std::uint64_t> uint_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::optional<double> double_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::optional<std::string> string_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::vector<std::string> strings_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::vector<double> numbers_attribute(const std::string& object, const std::string& name) const;

 private:
  [[nodiscard]] Handle open_attribute(const std::string& object, const std::string& name) const;
  template <class T>
  [[nodiscard]] std::optional<T> number_attribute(const std::string& object, const std::string& name, Id type) const;

  std::string path_;
  Handle handle_;
};

/// An open data set, to read rows (slices along the first axis).
class RowReader {
 public:
  RowReader(const File& file, const std::string& dataset);
  /// Reads rows [first, first + count) as elements of `dtype` into `out`.
  void read(std::int64_t first, std::int64_t count, DType dtype, void* out) const;

 private:
  std::string place_;
  Handle dataset_;
  std::vector<std::int64_t> dims_;
};

/// A file that is built in memory, or in another file. Data sets are contiguous; a scalar is in its object header.
class FileImage {
 public:
  /// `name` is used in messages; `expected_bytes` determines the steps in which the memory grows. `memory`, if given,
  /// holds the image and must outlive it.
  FileImage(std::string name, std::size_t expected_bytes, FileImageBuffer* memory = nullptr);
  /// Built in the file at `path`, which is emptied. It is complete after close().
  FileImage(std::string name, const std::string& path);

  /// Creates the group and its parents unless they exist.
  void create_group(const std::string& path);
  void write(const std::string& dataset, const HostTensor& tensor);
  /// A data set of such elements which nobody writes: they have their place in the file. Returns where it begins, in
  /// bytes. Not in memory.
  [[nodiscard]] std::int64_t reserve(const std::string& dataset, const Shape& shape, DType dtype);
  /// A data set [n] of UTF-8 strings.
  void write(const std::string& dataset, const std::vector<std::string>& values);
  void write_attribute(const std::string& object, const std::string& name, std::int64_t value);
  void write_attribute(const std::string& object, const std::string& name, std::uint64_t value);
  void write_attribute(const std::string& object, const std::string& name, double value);
  void write_attribute(const std::string& object, const std::string& name, const std::string& value);
  void write_attribute(const std::string& object, const std::string& name, const std::vector<std::string>& values);
  /// The bytes of the file so far; valid until the next write and the end of the image.
  [[nodiscard]] std::span<const std::byte> bytes();
  void close();

 private:
  [[nodiscard]] Handle create_dataset(const std::string& dataset, const Shape& shape, DType dtype, bool reserved);
  void write_number(const std::string& object, const std::string& name, Id type, const void* value);

  std::string name_;
  Handle handle_;
};

/// Runs `body`; turns an Error into a usage Error, unless it is one of the system (layers/base/system_error.h).
template <class Body>
decltype(auto) input_errors(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::kUsage);
  }
}

/// The version of the HDF5 library at run time: "1.10.8".
[[nodiscard]] std::string library_version();

}  // namespace convoy::hdf5
