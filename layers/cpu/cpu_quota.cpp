// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/cpu_quota.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "layers/base/file_text.h"

namespace convoy {

namespace {

struct Mount {
  std::string point;  // "/sys/fs/cgroup"
  std::string root;   // the group that is visible there: "/" but in containers
  bool unified = false;
};

bool is_word_of(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

// Where the kernel shows limits of CPU time: "ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS".
std::vector<Mount> cpu_mounts(const std::string& mountinfo) {
  std::vector<Mount> mounts;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string skipped, type, source, options;
    Mount mount;
    std::istringstream(line) >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
    mount.unified = type == "cgroup2";
    if (mount.unified || (type == "cgroup" && is_word_of(options, "cpu"))) mounts.push_back(mount);
  }
  return mounts;
}

// The process's group in the hierarchy of `mount`: lines "ID:CONTROLLERS:PATH", of version 2 "0::PATH".
std::optional<std::string> own_group(const std::string& cgroup, const Mount& mount) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (mount.unified ? controllers.empty() : is_word_of(controllers, "cpu")) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The folder of the group below the mount point; the point itself where the group is outside of what is visible.
std::string group_folder(const Mount& mount, std::string group) {
  if (mount.root != "/") {
    const bool inside =
        group.starts_with(mount.root) && (group.size() == mount.root.size() || group[mount.root.size()] == '/');
    group = inside ? group.substr(mount.root.size()) : "";
  }
  if (group == "/" || group.starts_with("/..")) group.clear();
  return mount.point + group;
}

// CPUs that the files of one folder allow; 0: no limit.
double limit_in(const CgroupFiles& files, const std::string& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::istringstream text(files.read(folder + "/cpu.max").value_or("max"));
    text >> quota >> period;  // "max 100000" sets neither
  } else {
    std::istringstream(files.read(folder + "/cpu.cfs_quota_us").value_or("-1")) >> quota;
    std::istringstream(files.read(folder + "/cpu.cfs_period_us").value_or("0")) >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

CpuQuota cpu_quota(const CgroupFiles& files) {
  CpuQuota strictest;
  const std::string cgroup = files.read("/proc/self/cgroup").value_or("");
  for (const Mount& mount : cpu_mounts(files.read("/proc/self/mountinfo").value_or(""))) {
    const auto group = own_group(cgroup, mount);
    if (!group) continue;
    for (std::string folder = group_folder(mount, *group);; folder.resize(folder.rfind('/'))) {
      const double cpus = limit_in(files, folder, mount.unified);
      if (cpus > 0 && (strictest.cpus == 0 || cpus < strictest.cpus)) strictest = {cpus, files.identify(folder)};
      if (folder.size() <= mount.point.size()) break;
    }
  }
  return strictest;
}

CpuQuota cpu_quota() {
  return cpu_quota({file_text, [](const std::string& folder) -> std::uint64_t {
                      struct stat entry {};
                      return stat(folder.c_str(), &entry) == 0 ? entry.st_ino : 0;
                    }});
}

}  // namespace convoy
