// SPDX-License-Identifier: Apache-2.0
#include "io/process_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace convoy {

namespace {

struct ProcessStat {
  char state = 'X';
  std::uint64_t start_time = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the name before them may hold blanks and parentheses.
ProcessStat read_stat(std::int64_t pid) {
  ProcessStat stat;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return stat;
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return stat;
  std::istringstream fields(line.substr(name_end + 1));
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_time;
  return stat;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::uint64_t pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessIdentity this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {host.data(), boot_id(), pid_namespace(), ::getpid(), read_stat(::getpid()).start_time};
}

Liveness liveness(const ProcessIdentity& process) {
  if (process.boot_id.empty() || process.boot_id != boot_id()) return Liveness::kUnknown;
  if (process.pid_namespace == 0 || process.pid_namespace != pid_namespace()) return Liveness::kUnknown;
  const ProcessStat stat = read_stat(process.pid);
  const bool runs = stat.start_time == process.start_time && stat.state != 'Z' && stat.state != 'X';
  return runs ? Liveness::kRuns : Liveness::kEnded;
}

}  // namespace convoy
