// SPDX-License-Identifier: Apache-2.0
//
// The child reads a file with the functions that the program uses. Elements that need no decoding, and large data sets,
// are sampled: the first and the last row.
#include "io/hdf5/validation.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/files/run_self.h"
#include "io/hdf5/hdf5.h"
#include "io/hdf5/hdf5_check.h"
#include "layers/base/system_error.h"

namespace convoy::hdf5 {

namespace {

constexpr std::int64_t kDecoded = 64 << 20;  // bytes of decoded elements of a file that are read completely
constexpr std::int64_t kTwice = 1 << 20;     // bytes of a data set that is read both at once and by rows
// The CPU time limit grows by one second for each of these. Chunks of 16 bytes, the slowest measured, took a fifth of
// it.
constexpr std::uintmax_t kSecondBytes = 1 << 19;
constexpr std::uintmax_t kMaxSeconds = 600;

constexpr std::string_view kCommand = "validate-hdf5";  // CPU_SECONDS MEMORY FILE...
constexpr int kValid = 64;                              // exit code; differs from those of sanitizers and the C library

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

// Errors are ignored here: they are reported when the file is opened.
template <class Body>
void attempt(Body&& body) {
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
    attempt([&] { (void)file.int_attribute(object, name); });
    attempt([&] { (void)file.uint_attribute(object, name); });
    attempt([&] { (void)file.double_attribute(object, name); });
    attempt([&] { (void)file.strings_attribute(object, name); });
  }
}

// `left`: the remaining bytes of decoded elements to read of this file.
void read_elements(const File& file, const std::string& dataset, std::int64_t& left) {
  const DatasetInfo info = file.info(dataset);
  const Handle handle(CONVOY_HDF5(H5Dopen2(file.id(), dataset.c_str(), H5P_DEFAULT), dataset));
  if (info.chunk_rows > 0) {
    const Handle space(CONVOY_HDF5(H5Dget_space(handle.id()), dataset));
    hsize_t chunks = 0;
    H5Dget_num_chunks(handle.id(), space.id(), &chunks);  // traverses the complete index
  }
  if (!info.dtype || info.size() == 0) return;
  const std::int64_t bytes = info.size() * static_cast<std::int64_t>(dtype_size(*info.dtype));
  const bool decoded = info.file_offset < 0;
  if (info.dims.empty() || (decoded && bytes <= left)) {
    left -= bytes;
    if (bytes <= kTwice) attempt([&] { (void)file.read(dataset, ""); });
    attempt([&] { file.verify(info); });  // by rows
  }
  if (info.dims.empty()) return;
  const std::int64_t row = bytes / info.dims[0];
  if (row > kDecoded) return;
  std::vector<std::byte> buffer(static_cast<std::size_t>(row));
  const RowReader reader(file, dataset);
  for (const std::int64_t index : {std::int64_t{0}, info.dims[0] - 1}) {
    attempt([&] { reader.read(index, 1, *info.dtype, buffer.data()); });
  }
}

void walk(const File& file) {
  std::vector<Object> objects;
  H5Ovisit2(file.id(), H5_INDEX_NAME, H5_ITER_INC, collect_object, &objects, H5O_INFO_BASIC);
  std::int64_t left = kDecoded;
  for (const Object& object : objects) {
    const std::string path = object.name == "." ? "/" : "/" + object.name;
    attempt([&] { read_attributes(file, path); });
    attempt([&] { object.dataset ? read_elements(file, path, left) : (void)file.groups(path); });
  }
}

// Inode, size and modification time: they identify one version of a file on every node. Nothing for a file that has
// just changed: its next change may have the same time.
using Stamp = std::array<std::uint64_t, 4>;

std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0 || s.st_mtim.tv_sec + 1 >= std::time(nullptr)) return std::nullopt;
  return Stamp{s.st_ino, static_cast<std::uint64_t>(s.st_size), static_cast<std::uint64_t>(s.st_mtim.tv_sec),
               static_cast<std::uint64_t>(s.st_mtim.tv_nsec)};
}

// The result of a validation: the stamp of the file when it was read, and the error, if any.
struct Verdict {
  Stamp stamp{};
  std::string error;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Verdict, stamp, error)
};

// Protected by the library's lock.
std::map<std::string, Verdict>& verdicts() {
  static std::map<std::string, Verdict> files;
  return files;
}

const Verdict* verdict_on(const std::string& path) {
  const auto file = verdicts().find(path);
  return file != verdicts().end() && stamp_of(path) == file->second.stamp ? &file->second : nullptr;
}

bool main_calls_us = false;  // see validate_if_child()

ChildLimits limits_for(const std::vector<std::string>& paths) {
  std::uintmax_t bytes = 0;
  for (const auto& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) bytes += size;
  }
  ChildLimits limits;
  limits.cpu_seconds += static_cast<unsigned>(std::min(bytes / kSecondBytes, kMaxSeconds));
  return limits;
}

ChildEnd read_in_child(const std::vector<std::string>& paths, const ChildLimits& limits) {
  if (!main_calls_us) return {ChildEnd::kNotStarted};
  std::vector<std::string> arguments{std::string(kCommand), std::to_string(limits.cpu_seconds),
                                     std::to_string(limits.memory)};
  arguments.insert(arguments.end(), paths.begin(), paths.end());
  return run_self(arguments);
}

bool is_valid(const ChildEnd& end) { return end.kind == ChildEnd::kExited && end.status == kValid; }

// The error that the end of the child implies for its file; empty when the file is valid.
std::string error_of(const std::string& path, const ChildEnd& end, const ChildLimits& limits) {
  if (is_valid(end) || end.kind == ChildEnd::kNotStarted) return "";
  if (end.kind == ChildEnd::kTooLong) {
    return fmt::format(
        "{}: damaged: HDF5 {} reads this file for {} s of processor time and does not finish; copy or write the file "
        "again",
        path, library_version(), limits.cpu_seconds);
  }
  return fmt::format("{}: damaged: HDF5 {} crashes when it reads this file ({}); copy or write the file again", path,
                     library_version(), end.kind == ChildEnd::kExited ? "no signal" : ::strsignal(end.status));
}

}  // namespace

void validate_if_child(int argc, char** argv) {
  main_calls_us = true;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 3 || words[0] != kCommand) return;
  prepare_child({static_cast<unsigned>(std::stoul(words[1])), std::stoul(words[2])});
  for (std::size_t i = 3; i < words.size(); ++i) {
    attempt([&] { walk(File(words[i], Trust::kTrusted)); });
  }
  std::_Exit(kValid);  // skips the leak report of sanitizers
}

void validate(const std::string& path) {
  const auto guard = lock();
  const Verdict* known = verdict_on(path);
  std::string error = known != nullptr ? known->error : "";
  if (known == nullptr) {
    const auto stamp = stamp_of(path);
    const ChildLimits limits = limits_for({path});
    const ChildEnd end = read_in_child({path}, limits);
    if (end.kind == ChildEnd::kCrashed && end.status == SIGKILL) {
      fail_io("{}: the process that checks it was killed (out of memory?)", path);
    }
    if (end.kind == ChildEnd::kNoAnswer) {
      fail_io("{}: reading it in another process did not end (a file server that does not answer?)", path);
    }
    error = error_of(path, end, limits);
    if (stamp && end.kind != ChildEnd::kNotStarted) verdicts()[path] = {*stamp, error};
  }
  if (!error.empty()) fail("{}", error);
}

void validate_together(const std::vector<std::string>& paths) {
  const auto guard = lock();
  std::vector<std::string> unknown;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(unknown),
               [](const std::string& path) { return verdict_on(path) == nullptr; });
  if (unknown.size() == 1) return attempt([&] { validate(unknown.front()); });
  std::map<std::string, Verdict> valid;
  for (const auto& path : unknown) {
    if (const auto stamp = stamp_of(path)) valid[path] = {*stamp, ""};
  }
  if (!unknown.empty() && is_valid(read_in_child(unknown, limits_for(unknown)))) {
    for (const auto& [path, verdict] : valid) verdicts()[path] = verdict;
  }
}

std::string validated_files() {
  const auto guard = lock();
  return nlohmann::json(verdicts()).dump();
}

void add_validated_files(const std::string& text) {
  const auto guard = lock();
  verdicts().merge(nlohmann::json::parse(text).get<std::map<std::string, Verdict>>());
}

}  // namespace convoy::hdf5
