// SPDX-License-Identifier: Apache-2.0
#include "app/launch/mpi_leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "app/launch/process_tree.h"
#include "io/files/atomic_file.h"
#include "io/files/process_identity.h"
#include "layers/base/host_name.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLookAgain{1000};
// How names of Open MPI, MPICH, PSM, UCX and NCCL begin: all else in the folder may be somebody's data.
constexpr std::array<std::string_view, 9> kPrefixes{"vader_segment.", "sm_segment.", "osc_sm",   "osc_rdma", "mpich_",
                                                    "psm_shm",        "psm2_shm",    "ucx_shm_", "nccl-"};

bool is_of_mpi(const std::string& name) {
  return name.find('/') == std::string::npos &&
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view start) { return name.starts_with(start); });
}

// The names in `folder` that the process maps and that are still there.
void add_mapped(const std::string& pid, const std::string& folder, std::set<std::string>& names) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find(folder + "/");
    if (at == std::string::npos || line.ends_with(" (deleted)")) continue;
    const std::string name = line.substr(at + folder.size() + 1);
    if (is_of_mpi(name)) names.insert(name);
  }
}

// Those that any process of this machine maps, as far as this user may look.
std::set<std::string> mapped_names(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string pid = at->path().filename();
    if (pid.find_first_not_of("0123456789") == std::string::npos) add_mapped(pid, folder, names);
  }
  return names;
}

bool is_own(const std::string& path, mode_t kind) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == kind && status.st_uid == ::geteuid();
}

// Open MPI 4: ".../ompi.HOST.UID/pid.123" of the launcher 123. Of other forms the launcher is not known: 0.
pid_t launcher_of(const std::string& session) {
  const fs::path path(session);
  const std::string folder = path.parent_path().filename(), name = path.filename();
  if (!folder.starts_with("ompi.") || !name.starts_with("pid.")) return 0;
  pid_t pid = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + 4, end, pid);
  return error == std::errc() && stop == end && pid > 0 ? pid : 0;
}

bool is_there(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

bool launcher_ended(const std::string& session) {
  const pid_t launcher = launcher_of(session);
  return launcher > 0 && !is_there(launcher);
}

// Names and folders are of this machine since it was started, and of this set of processes.
std::string place() {
  const ProcessIdentity own = this_process();
  return fmt::format("{} {}", own.boot_id, own.pid_namespace);
}

}  // namespace

MpiLeftovers::MpiLeftovers(std::string record, std::string shared)
    : record_(std::move(record)), shared_(std::move(shared)) {
  read_record();
  sweep();
}

void MpiLeftovers::look(pid_t launcher) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  if (launcher != launcher_) {
    launcher_ = launcher;
    expect_sessions(launcher);
    write_record();
  }
  const auto before = std::make_pair(names_, ranks_);
  bool found = false;
  for (const pid_t pid : descendants_of(launcher)) found = look_at(pid) || found;
  if (found) next_ = now + kLookAgain;
  if (before != std::make_pair(names_, ranks_)) write_record();
}

void MpiLeftovers::look_at_orphans() {
  for (const pid_t pid : descendants_of(::getpid())) look_at(pid);
}

// Where Open MPI 4's mpirun makes its folder, which may be before any rank is seen.
void MpiLeftovers::expect_sessions(pid_t launcher) {
  std::string folder = "/tmp";
  for (const char* name : {"TMP", "TEMP", "TMPDIR"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') folder = value;
  }
  const std::string host = host_name("");
  for (const std::string& name : {host, host.substr(0, host.find('.'))}) {
    sessions_.insert(fmt::format("{}/ompi.{}.{}/pid.{}", folder, name, ::geteuid(), launcher));
  }
}

// PMIx has files in these folders that are named after the jobs: "smseg-90243073-0".
void MpiLeftovers::find_jobs() {
  constexpr std::string_view kStart = "smseg-";
  for (const std::string& session : sessions_) {
    if (!is_own(session, S_IFDIR) || !launcher_ended(session)) continue;
    std::error_code error;
    for (fs::recursive_directory_iterator at(session, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename();
      std::uint32_t job = 0;
      if (!name.starts_with(kStart)) continue;
      const auto [stop, wrong] = std::from_chars(name.data() + kStart.size(), name.data() + name.size(), job);
      if (wrong == std::errc() && *stop == '-') jobs_.insert(fmt::format("{:x}", job));
    }
  }
}

// Whether it is a rank.
bool MpiLeftovers::look_at(pid_t rank) {
  const std::string pid = std::to_string(rank);
  if (!ranks_.contains(rank)) {
    std::ifstream file("/proc/" + pid + "/environ");
    bool is_rank = false;
    for (std::string text; std::getline(file, text, '\0');) {
      const std::size_t equals = text.find('=');
      const std::string name = text.substr(0, equals),
                        value = equals == std::string::npos ? "" : text.substr(equals + 1);
      is_rank = is_rank || name == "PMIX_RANK" || name == "PMI_RANK";
      if (name == "PMIX_SERVER_TMPDIR") sessions_.insert(value);
      std::uint32_t job = 0;
      const char* end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, job);
      if (name == "PMIX_NAMESPACE" && error == std::errc() && stop == end) jobs_.insert(fmt::format("{:x}", job));
    }
    if (!is_rank) return false;
    ranks_.insert(rank);
  }
  add_mapped(pid, shared_, names_);
  return true;
}

void MpiLeftovers::sweep() {
  if (ranks_.empty() && names_.empty() && jobs_.empty() && sessions_.empty()) return;
  find_jobs();
  remove_shared();
  remove_sessions();
  ranks_.clear();
  next_ = {};
  launcher_ = 0;
  // A launcher that is still ending removes its own; if it is killed before it has, the next sweep does.
  std::erase_if(sessions_, [](const std::string& session) {
    return !is_own(session, S_IFDIR) || launcher_of(session) == 0 || launcher_ended(session);
  });
  if (!sessions_.empty()) return write_record();
  names_.clear();
  jobs_.clear();
  ::unlink(record_.c_str());
}

void MpiLeftovers::remove_shared() const {
  std::vector<std::string> left;
  std::error_code error;
  for (fs::directory_iterator at(shared_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    const bool of_job = std::any_of(jobs_.begin(), jobs_.end(), [&](const std::string& job) {
      return (name + ".").find("." + job + ".") != std::string::npos;
    });
    if (is_of_mpi(name) && (of_job || names_.contains(name)) && is_own(at->path(), S_IFREG)) left.push_back(name);
  }
  if (left.empty()) return;
  const std::set<std::string> used = mapped_names(shared_);
  for (const std::string& name : left) {
    if (!used.contains(name)) ::unlink((shared_ + "/" + name).c_str());
  }
}

void MpiLeftovers::remove_sessions() const {
  for (const std::string& session : sessions_) {
    std::error_code ignored;
    if (is_own(session, S_IFDIR) && launcher_ended(session)) fs::remove_all(session, ignored);
  }
}

void MpiLeftovers::read_record() {
  std::ifstream file(record_);
  std::string line;
  if (!std::getline(file, line) || line != place()) return;
  while (std::getline(file, line)) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string kind = line.substr(0, space), value = line.substr(space + 1);
    if (value.empty()) continue;
    if (kind == "name" && is_of_mpi(value)) names_.insert(value);
    if (kind == "job" && value.find_first_not_of("0123456789abcdef") == std::string::npos) jobs_.insert(value);
    if (kind == "session") sessions_.insert(value);
  }
}

// A folder that cannot be written costs the record, not the run.
void MpiLeftovers::write_record() const {
  std::string text = place() + "\n";
  for (const std::string& name : names_) text += "name " + name + "\n";
  for (const std::string& job : jobs_) text += "job " + job + "\n";
  for (const std::string& session : sessions_) text += "session " + session + "\n";
  const std::string temporary = record_ + kTemporarySuffix;
  std::ofstream(temporary) << text;
  ::rename(temporary.c_str(), record_.c_str());
}

}  // namespace convoy
