// SPDX-License-Identifier: Apache-2.0
#include "app/commands/write_result.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "io/files/atomic_file.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

// What is open already: a file there would have two names, of which a rename changes one.
bool is_open_descriptor(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") || path.starts_with("/proc/");
}

std::string folder_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return (parent.empty() ? "." : parent) + "/.";
}

void write_into(const std::string& path, std::span<const std::byte> bytes) {
  int descriptor = -1;
  do descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail_system(errno, "cannot write {}: {}", path, std::strerror(errno));
  try {
    write_all(descriptor, bytes, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) fail_io("cannot write {}: {}", path, std::strerror(errno));
}

// Whether the file lies in the folder, at any depth.
bool is_within(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::canonical(file, error), outer = fs::canonical(folder, error);
  if (error) return false;
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end() && at != inner.end();
}

bool is_one_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const auto whole = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(behind_links(path), error), error).lexically_normal();
  };
  return whole(a) == whole(b);
}

}  // namespace

std::string behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;
  fs::path target(path);
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) fail_system(ELOOP, "cannot write {}: {}", path, std::strerror(ELOOP));
    const fs::path next = fs::read_symlink(target, error);
    if (error) fail_system(error.value(), "cannot read the link {}: {}", target.string(), error.message());
    target = target.parent_path() / next;
  }
  return target.string();
}

void write_output(const std::string& path, std::span<const std::byte> bytes) {
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  const bool plain = !there || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
  if (is_open_descriptor(path) || !plain) return write_into(path, bytes);
  const std::string target = behind_links(path);
  if (::access(folder_of(target).c_str(), W_OK | X_OK) != 0) {
    fail_system(errno, "cannot write {}: {} (name a folder that may be written)", path, std::strerror(errno));
  }
  write_file_atomically(target, bytes);
}

void write_result(const char* option, const std::string& path, std::span<const std::byte> bytes) {
  try {
    write_output(path, bytes);
  } catch (const SystemError& error) {
    fail_as(error, std::string(option) + ": " + error.what());
  } catch (const Error& error) {
    fail_usage("{}: {}", option, error.what());
  }
}

void check_result_path(const char* option, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) fail_usage("{}: {} is a folder (name the file that is to be written)", option, path);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;  // a device or a pipe
  if (::access(folder_of(behind_links(path)).c_str(), W_OK | X_OK) != 0) {
    fail_system(errno, "{}: cannot write {}: {}", option, path, std::strerror(errno));
  }
}

void check_results(const std::vector<ResultFile>& results, const std::vector<std::string>& inputs) {
  for (auto result = results.begin(); result != results.end(); ++result) {
    const std::string& path = result->path;
    std::error_code error;
    if (path.empty() || is_open_descriptor(path)) continue;
    if (fs::exists(fs::status(path, error)) && !fs::is_regular_file(fs::status(path, error))) continue;
    for (auto other = results.begin(); other != result; ++other) {
      if (!other->path.empty() && is_one_file(other->path, path)) {
        fail_usage("{} and {} both name {} (name two files)", other->option, result->option, path);
      }
    }
    for (const std::string& input : inputs) {
      if (!fs::exists(fs::status(path, error))) break;
      if (fs::equivalent(path, input, error) || is_within(path, input)) {
        fail_usage("{}: {} is read by this command, and would be replaced (name another file)", result->option, path);
      }
    }
  }
}

std::vector<std::string> files_of_run(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* name : {"config.toml", "metrics.jsonl", "log.txt", "run.json", "checkpoints"}) {
    files.push_back(folder + "/" + name);
  }
  return files;
}

}  // namespace convoy
