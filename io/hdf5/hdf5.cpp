// SPDX-License-Identifier: Apache-2.0
//
// The lock, handles, error text and opening of hdf5.h; hdf5_data.cpp has the data sets, hdf5_attributes.cpp the
// attributes. Relies on the C API, and on validation.h before a file is opened. Invariant: every function that calls
// HDF5 holds the lock first.
#include "io/hdf5/hdf5.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "io/hdf5/hdf5_check.h"
#include "io/hdf5/outside_references.h"
#include "io/hdf5/validation.h"
#include "layers/base/system_error.h"

namespace convoy::hdf5 {

namespace {

// Keeps the first message of the error stack, which is the most specific one.
herr_t first_message(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// HDF5 wraps the message of the system: "... errno = 28, error message = 'No space left on device', buf = ...".
std::string plain_text(const std::string& text) {
  constexpr std::string_view kMark = "error message = '";
  const auto start = text.find(kMark);
  if (start == std::string::npos) return text;
  const auto end = text.find('\'', start + kMark.size());
  return text.substr(start + kMark.size(), end == std::string::npos ? end : end - start - kMark.size());
}

}  // namespace

std::recursive_mutex& library_lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

std::unique_lock<std::recursive_mutex> lock() {
  std::unique_lock guard(library_lock());
  // The library's clean-up at the exit crashes on a file whose H5Fclose() has failed. No file is open then.
  [[maybe_unused]] static const herr_t no_exit_handler = H5dont_atexit();
  // Thread-safe builds of the library have such settings by thread.
  [[maybe_unused]] static thread_local const herr_t silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return guard;
}

void throw_hdf5_error(const char* call, const std::string& place) {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_message, &text);
  H5Eclear2(H5E_DEFAULT);
  const std::string_view whole(call);
  const std::string plain = text.empty() ? "failed" : plain_text(text);
  const std::string_view name = whole.substr(0, whole.find('('));
  // Of the system; of an fstat() that fails HDF5 says no more than this.
  const bool of_system = (plain != text && !text.empty()) || text.find("stat info") != std::string::npos;
  if (of_system) fail_io("{}: {} (HDF5 call {})", place, plain, name);
  fail("{}: {} (HDF5 call {})", place, plain, name);
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

File::File(const std::string& path, Trust origin) : path_(path) {
  // The system's message is clearer than HDF5's when there is no such file, or it may not be read.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  struct stat status {};
  if (descriptor >= 0 && ::fstat(descriptor, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    fail_usage("{}: is no regular file", path);
  }
  char byte = 0;
  const bool readable = descriptor >= 0 && ::read(descriptor, &byte, 1) >= 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!readable) fail_system(reason, "cannot read {}: {}", path, std::strerror(reason));

  const auto guard = lock();
  if (origin == Trust::kUntrusted) validate(path);
  const Handle access = access_list(path);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
  if (id < 0) throw_hdf5_error("H5Fopen", path + ": not a complete HDF5 file");
  handle_ = Handle(id);
  refuse_outside_references(id, path);
}

}  // namespace convoy::hdf5
