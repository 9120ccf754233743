// SPDX-License-Identifier: Apache-2.0
#include "layers/base/cgroups.h"

#include <algorithm>
#include <sstream>

namespace convoy {

namespace {

struct Mount {
  std::string point;  // "/sys/fs/cgroup"
  std::string root;   // the group that is visible there: "/" but in containers
  bool v2 = false;
};

bool is_word_of(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

// mountinfo (proc_pid_mountinfo(5)): "ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS".
std::vector<Mount> mounts_of(std::string_view controller, const std::string& mountinfo) {
  std::vector<Mount> mounts;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string skipped, type, source, options;
    Mount mount;
    std::istringstream(line) >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
    mount.v2 = type == "cgroup2";
    if (mount.v2 || (type == "cgroup" && is_word_of(options, controller))) mounts.push_back(mount);
  }
  std::stable_partition(mounts.begin(), mounts.end(), [](const Mount& mount) { return mount.v2; });
  return mounts;
}

// The process's group in the hierarchy: lines "ID:CONTROLLERS:PATH", of version 2 "0::PATH".
std::optional<std::string> own_group(std::string_view controller, const std::string& cgroup, bool v2) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : is_word_of(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's path below the mount point; empty for the point itself, also where the group is outside of what is
// visible.
std::string visible_path(const Mount& mount, std::string group) {
  if (mount.root != "/") {
    const bool inside =
        group.starts_with(mount.root) && (group.size() == mount.root.size() || group[mount.root.size()] == '/');
    group = inside ? group.substr(mount.root.size()) : "";
  }
  return group == "/" || group.starts_with("/..") ? "" : group;
}

}  // namespace

std::vector<Cgroup> cgroups_of(std::string_view controller, const FileReader& read) {
  std::vector<Cgroup> groups;
  const std::string own = read("/proc/self/cgroup").value_or("");
  for (const Mount& mount : mounts_of(controller, read("/proc/self/mountinfo").value_or(""))) {
    const auto group = own_group(controller, own, mount.v2);
    if (!group) continue;
    for (std::string path = visible_path(mount, *group);; path.resize(path.rfind('/'))) {
      const std::string shown = path.empty() ? "/" : path;
      const bool known = std::any_of(groups.begin(), groups.end(),  // by another mount of the same hierarchy
                                     [&](const Cgroup& each) { return each.v2 == mount.v2 && each.path == shown; });
      if (!known) groups.push_back({mount.point + path, shown, mount.v2});
      if (path.empty()) break;
    }
  }
  return groups;
}

}  // namespace convoy
