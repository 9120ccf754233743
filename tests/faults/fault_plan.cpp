// SPDX-License-Identifier: Apache-2.0
#include "fault_plan.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace faults {

namespace {

struct Plan {
  std::string root, call, pattern, error, fired;
  long number = 0;
  int log = -1, record = -1;
  const volatile std::int64_t* clock = nullptr;
  std::atomic<long> seen{0};
};

Plan* plan = nullptr;  // none: this process is left alone

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int raw_open(const std::string& path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags | O_CLOEXEC, 0644));
}

void raw_write(int descriptor, const std::string& text) {
  // One write(): lines of threads and processes do not mix, since the file is opened with O_APPEND.
  if (::syscall(SYS_write, descriptor, text.data(), text.size()) != static_cast<long>(text.size())) std::abort();
}

std::string link_text(const std::string& link) {
  std::string text(PATH_MAX, '\0');
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

std::string folder_text(int at) {
  return link_text(at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(at));
}

// Relative to the root; "." for the root, empty for what is not below it.
std::string below_root(std::string path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.size() > kDeleted.size() && std::string_view(path).substr(path.size() - kDeleted.size()) == kDeleted) {
    path.resize(path.size() - kDeleted.size());
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == plan->root) return ".";
  if (path.size() <= plan->root.size() + 1 || !path.starts_with(plan->root) || path[plan->root.size()] != '/')
    return "";
  path.erase(0, plan->root.size() + 1);
  while (path.starts_with("./")) path.erase(0, 2);
  return path;
}

bool is_this_process(int argc, char** argv) {
  const std::string command = variable("CONVOY_FAULT_COMMAND"), rank = variable("CONVOY_FAULT_RANK");
  if (!command.empty() && (argc < 2 || command != argv[1])) return false;
  if (rank.empty()) return true;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (const std::string own = variable(name); !own.empty()) return own == rank;
  }
  return rank == "0";
}

int error_number(const std::string& name) {
  if (name == "ENOSPC") return ENOSPC;
  if (name == "EINTR") return EINTR;
  return EIO;
}

__attribute__((constructor)) void read_plan(int argc, char** argv, char** /*environment*/) {
  if (!is_this_process(argc, argv)) return;
  static Plan one;
  one.root = variable("CONVOY_FAULT_ROOT");
  one.call = variable("CONVOY_FAULT_CALL");
  one.pattern = variable("CONVOY_FAULT_PATH");
  one.error = variable("CONVOY_FAULT_ERROR");
  one.fired = variable("CONVOY_FAULT_FIRED");
  one.number = std::atol(variable("CONVOY_FAULT_NUMBER").c_str());
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  if (const auto path = variable("CONVOY_FAULT_LOG"); !path.empty()) one.log = raw_open(path, kAppend);
  if (const auto path = variable("CONVOY_FAULT_RECORD"); !path.empty()) one.record = raw_open(path, kAppend);
  if (const auto path = variable("CONVOY_FAULT_CLOCK"); !path.empty()) {
    const int descriptor = raw_open(path, O_RDONLY);
    void* memory = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
    if (memory != MAP_FAILED) one.clock = static_cast<const volatile std::int64_t*>(memory);
  }
  plan = &one;
}

}  // namespace

Call call_on(const char* name, int at, const char* path) {
  if (plan == nullptr || plan->root.empty() || path == nullptr || *path == '\0') return {};
  return {name, below_root(*path == '/' ? path : folder_text(at) + "/" + path)};
}

Call call_on(const char* name, int descriptor) {
  if (plan == nullptr || plan->root.empty()) return {};
  return {name, below_root(folder_text(descriptor))};
}

Verdict judge(const Call& call) {
  if (!call) return Verdict::kGoOn;
  if (plan->log >= 0) raw_write(plan->log, std::string(call.name) + "\t" + call.path + "\n");
  if (plan->number == 0 || plan->call != call.name || ::fnmatch(plan->pattern.c_str(), call.path.c_str(), 0) != 0) {
    return Verdict::kGoOn;
  }
  if (++plan->seen != plan->number) return Verdict::kGoOn;
  if (!plan->fired.empty()) {
    const int fired = raw_open(plan->fired, O_WRONLY | O_CREAT | O_EXCL);
    if (fired < 0) return Verdict::kGoOn;
    ::syscall(SYS_close, fired);
  }
  if (plan->error == "short") return Verdict::kShort;
  errno = error_number(plan->error);
  return Verdict::kFail;
}

bool records() { return plan != nullptr && plan->record >= 0; }

std::mutex& record_mutex() {
  static std::mutex one;
  return one;
}

void record(const char* operation, std::uint64_t inode, const std::string& path, const std::string& other,
            std::int64_t offset, const void* bytes, std::size_t count) {
  std::string text = std::string(operation) + "\t" + std::to_string(inode) + "\t" + path + "\t" + other + "\t" +
                     std::to_string(offset) + "\t" + std::to_string(count) + "\n";
  if (bytes != nullptr) text.append(static_cast<const char*>(bytes), count);
  raw_write(plan->record, text);
}

namespace {

std::uint64_t inode(int at, const char* path, int flags) {
  struct statx status {};
  if (::syscall(SYS_statx, at, path, flags, STATX_INO, &status) != 0) return 0;
  return status.stx_ino;
}

}  // namespace

std::uint64_t inode_of(int at, const char* path) { return inode(at, path, AT_SYMLINK_NOFOLLOW); }

std::uint64_t inode_of(int descriptor) { return inode(descriptor, "", AT_EMPTY_PATH); }

std::int64_t clock_offset() { return plan == nullptr || plan->clock == nullptr ? 0 : *plan->clock; }

}  // namespace faults
