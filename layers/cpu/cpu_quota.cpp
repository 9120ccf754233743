// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/cpu_quota.h"

#include <sys/stat.h>

#include <sstream>

namespace convoy {

namespace {

// CPUs that the files of one group allow; 0: no limit.
double limit_in(const CgroupFiles& files, const Cgroup& group) {
  double quota = 0, period = 0;
  if (group.v2) {
    std::istringstream text(files.read(group.folder + "/cpu.max").value_or("max"));
    text >> quota >> period;  // "max 100000" sets neither
  } else {
    std::istringstream(files.read(group.folder + "/cpu.cfs_quota_us").value_or("-1")) >> quota;
    std::istringstream(files.read(group.folder + "/cpu.cfs_period_us").value_or("0")) >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

CpuQuota cpu_quota(const CgroupFiles& files) {
  CpuQuota strictest;
  for (const Cgroup& group : cgroups_of("cpu", files.read)) {
    const double cpus = limit_in(files, group);
    if (cpus > 0 && (strictest.cpus == 0 || cpus < strictest.cpus)) strictest = {cpus, files.identify(group.folder)};
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
