// SPDX-License-Identifier: Apache-2.0
//
// Walks over a file by the functions with which this program reads one. Elements that lie in the file as they are need
// no decoding: of those, and of large data sets, the first and the last rows do.
#include "io/hdf5/hdf5_trial.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <vector>

#include "io/files/trial.h"
#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_check.h"

namespace convoy::hdf5 {

namespace {

constexpr std::int64_t kDecoded = 64 << 20;  // bytes of elements of one file that are all read
constexpr std::int64_t kTwice = 1 << 20;     // bytes of a data set that are read as a whole and by rows
// Of a file: as many give it one more second. Chunks of 16 bytes, the worst that was tried, took a fifth of that.
constexpr std::uintmax_t kSecondBytes = 1 << 19;
constexpr std::uintmax_t kMaxSeconds = 600;

struct Object {
  std::string name;  // "." is the root
  bool dataset = false;
};

herr_t collect_object(hid_t, const char* name, const H5O_info_t* info, void* objects) {
  return collect<Object>({name, info->type == H5O_TYPE_DATASET}, objects);
}

herr_t collect_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
  return collect<std::string>(name, names);
}

// One problem does not keep the walk from what comes after it.
template <class Body>
void go_on(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const std::exception&) {
  }
}

void read_attributes(const File& file, const std::string& object) {
  std::vector<std::string> names;
  hsize_t at = 0;
  H5Aiterate_by_name(file.id(), object.c_str(), H5_INDEX_NAME, H5_ITER_NATIVE, &at, collect_attribute, &names,
                     H5P_DEFAULT);
  for (const auto& name : names) {
    go_on([&] { (void)file.int_attribute(object, name); });
    go_on([&] { (void)file.uint_attribute(object, name); });
    go_on([&] { (void)file.double_attribute(object, name); });
    go_on([&] { (void)file.strings_attribute(object, name); });
  }
}

// `left`: how many bytes of decoded elements are still to be read of this file.
void read_elements(const File& file, const std::string& dataset, std::int64_t& left) {
  const DatasetInfo info = file.info(dataset);
  const Handle handle(CONVOY_HDF5(H5Dopen2(file.id(), dataset.c_str(), H5P_DEFAULT), dataset));
  if (info.chunk_rows > 0) {
    const Handle space(CONVOY_HDF5(H5Dget_space(handle.id()), dataset));
    hsize_t chunks = 0;
    H5Dget_num_chunks(handle.id(), space.id(), &chunks);  // goes through the whole index
  }
  if (!info.dtype || info.size() == 0) return;
  const std::int64_t bytes = info.size() * static_cast<std::int64_t>(dtype_size(*info.dtype));
  const bool decoded = info.file_offset < 0;
  if (info.dims.empty() || (decoded && bytes <= left)) {
    left -= bytes;
    if (bytes <= kTwice) go_on([&] { (void)file.read(dataset, ""); });
    go_on([&] { file.verify(info); });  // by rows
  }
  if (info.dims.empty()) return;
  const std::int64_t row = bytes / info.dims[0];
  if (row > kDecoded) return;
  std::vector<std::byte> buffer(static_cast<std::size_t>(row));
  const RowReader reader(file, dataset);
  for (const std::int64_t index : {std::int64_t{0}, info.dims[0] - 1}) {
    go_on([&] { reader.read(index, 1, *info.dtype, buffer.data()); });
  }
}

void walk(const File& file) {
  std::vector<Object> objects;
  H5Ovisit2(file.id(), H5_INDEX_NAME, H5_ITER_INC, collect_object, &objects, H5O_INFO_BASIC);
  std::int64_t left = kDecoded;
  for (const Object& object : objects) {
    const std::string path = object.name == "." ? "/" : "/" + object.name;
    go_on([&] { read_attributes(file, path); });
    go_on([&] { object.dataset ? read_elements(file, path, left) : (void)file.groups(path); });
  }
}

// What tells a file from others that had its name, and from itself before it was written to. None of a file that was
// written to just now: its time may be that of the next change too.
using Stamp = std::array<std::uint64_t, 5>;

std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0 || s.st_mtim.tv_sec + 1 >= std::time(nullptr)) return std::nullopt;
  return Stamp{s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), static_cast<std::uint64_t>(s.st_mtim.tv_sec),
               static_cast<std::uint64_t>(s.st_mtim.tv_nsec)};
}

// The files that a child has read and lived. Under the library's lock.
std::map<std::string, Stamp>& survived() {
  static std::map<std::string, Stamp> files;
  return files;
}

bool is_known(const std::string& path) {
  const auto file = survived().find(path);
  return file != survived().end() && stamp_of(path) == file->second;
}

TrialLimits limits_for(const std::vector<std::string>& paths) {
  std::uintmax_t bytes = 0;
  for (const auto& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) bytes += size;
  }
  TrialLimits limits;
  limits.cpu_seconds += static_cast<unsigned>(std::min(bytes / kSecondBytes, kMaxSeconds));
  return limits;
}

TrialEnd try_all(const std::vector<std::string>& paths, const TrialLimits& limits) {
  std::map<std::string, Stamp> files;
  for (const auto& path : paths) {
    if (const auto stamp = stamp_of(path)) files.emplace(path, *stamp);
  }
  const TrialEnd end = run_trial(
      [&] {
        // The thread that held the lock is another one by its number here.
        new (&library_lock()) std::recursive_mutex;
        for (const auto& path : paths) {
          go_on([&] { walk(File(path, Trust::kTrusted)); });
        }
      },
      limits);
  if (end.kind == TrialEnd::kReturned) {
    for (const auto& [path, stamp] : files) survived()[path] = stamp;
  }
  return end;
}

}  // namespace

void try_reading(const std::string& path) {
  const auto guard = lock();
  if (is_known(path)) return;
  const TrialLimits limits = limits_for({path});
  const TrialEnd end = try_all({path}, limits);
  if (end.kind == TrialEnd::kCrashed) {
    fail("{}: damaged: HDF5 {} crashes when it reads this file ({}); copy or write the file again", path,
         library_version(), end.signal == 0 ? "no signal" : ::strsignal(end.signal));
  }
  if (end.kind == TrialEnd::kTooLong) {
    fail(
        "{}: damaged: HDF5 {} reads this file for {} s of processor time and comes to no end; copy or write the file "
        "again",
        path, library_version(), limits.cpu_seconds);
  }
}

void try_reading_together(const std::vector<std::string>& paths) {
  const auto guard = lock();
  std::vector<std::string> unknown;
  std::remove_copy_if(paths.begin(), paths.end(), std::back_inserter(unknown), is_known);
  if (unknown.size() > 1) static_cast<void>(try_all(unknown, limits_for(unknown)));
}

}  // namespace convoy::hdf5
