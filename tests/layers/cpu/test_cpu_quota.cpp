// SPDX-License-Identifier: Apache-2.0
#include "layers/cpu/cpu_quota.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>

using namespace convoy;

namespace {

using Files = std::map<std::string, std::string>;

// The quota in a made-up file system; a group's number is the length of its folder's name.
CpuQuota quota_in(const Files& files) {
  return cpu_quota({[&](const std::string& path) -> std::optional<std::string> {
                      const auto found = files.find(path);
                      if (found == files.end()) return std::nullopt;
                      return found->second;
                    },
                    [](const std::string& folder) { return folder.size(); }});
}

const std::string kUnified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kLegacy =
    "22 1 254:1 / / rw shared:1 - ext4 /dev/vda rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
    "32 31 0:29 ROOT /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

std::string legacy(const std::string& root) {
  std::string text = kLegacy;
  return text.replace(text.find("ROOT"), 4, root);
}

}  // namespace

TEST_CASE("version 2: the strictest of the group and those above it") {
  Files files{{"/proc/self/mountinfo", kUnified}, {"/proc/self/cgroup", "0::/a/b\n"}};
  CHECK(quota_in(files) == CpuQuota{0, 0});
  files["/sys/fs/cgroup/a/b/cpu.max"] = "max 100000\n";
  CHECK(quota_in(files).cpus == 0);
  files["/sys/fs/cgroup/a/b/cpu.max"] = "250000 100000\n";
  CHECK(quota_in(files) == CpuQuota{2.5, std::string("/sys/fs/cgroup/a/b").size()});
  files["/sys/fs/cgroup/a/cpu.max"] = "300000 100000\n";
  CHECK(quota_in(files).cpus == 2.5);
  files["/sys/fs/cgroup/a/cpu.max"] = "50000 50000\n";
  CHECK(quota_in(files) == CpuQuota{1, std::string("/sys/fs/cgroup/a").size()});
  files["/sys/fs/cgroup/cpu.max"] = "50000 100000\n";  // of a container, whose group is the root that it sees
  CHECK(quota_in(files) == CpuQuota{0.5, std::string("/sys/fs/cgroup").size()});
}

TEST_CASE("version 1: the controller named cpu, not its kin") {
  Files files{{"/proc/self/mountinfo", legacy("/")},
              {"/proc/self/cgroup", "9:name=systemd:/\n2:cpuacct:/wrong\n1:cpu:/job/step\n0::/\n"}};
  files["/sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us"] = "-1\n";
  files["/sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us"] = "100000\n";
  files["/sys/fs/cgroup/cpuacct/wrong/cpu.cfs_quota_us"] = "100\n";
  files["/sys/fs/cgroup/cpuacct/wrong/cpu.cfs_period_us"] = "100000\n";
  CHECK(quota_in(files).cpus == 0);
  files["/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us"] = "150000\n";
  files["/sys/fs/cgroup/cpu/job/cpu.cfs_period_us"] = "100000\n";
  CHECK(quota_in(files) == CpuQuota{1.5, std::string("/sys/fs/cgroup/cpu/job").size()});
}

TEST_CASE("in a container the path of the host is cut to what is mounted") {
  Files files{{"/proc/self/mountinfo", legacy("/docker/abc")}, {"/proc/self/cgroup", "3:cpu,cpuacct:/docker/abc/x\n"}};
  files["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "400000\n";
  files["/sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000\n";
  CHECK(quota_in(files).cpus == 4);
  files["/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us"] = "200000\n";
  files["/sys/fs/cgroup/cpu/x/cpu.cfs_period_us"] = "100000\n";
  CHECK(quota_in(files).cpus == 2);
  files["/proc/self/cgroup"] = "3:cpu,cpuacct:/docker/abcd\n";  // another group: what is mounted counts
  CHECK(quota_in(files).cpus == 4);
  files["/proc/self/cgroup"] = "3:cpu,cpuacct:/../other\n";
  files["/proc/self/mountinfo"] = legacy("/");
  CHECK(quota_in(files).cpus == 4);
}

TEST_CASE("files that are missing, cut short or nonsense are no limit") {
  CHECK(quota_in({}) == CpuQuota{0, 0});
  for (const char* text : {"", "max", "x y", "100000", "0 0", "-5 100000", "100000 0"}) {
    CAPTURE(text);
    CHECK(quota_in({{"/proc/self/mountinfo", kUnified},
                    {"/proc/self/cgroup", "0::/a\n"},
                    {"/sys/fs/cgroup/a/cpu.max", text}}) == CpuQuota{0, 0});
  }
  for (const char* group : {"", ":", "0:", "0::", "\n\n"}) {
    CAPTURE(group);
    CHECK(quota_in({{"/proc/self/mountinfo", kUnified + " - \nx - cgroup2\n"}, {"/proc/self/cgroup", group}}).cpus ==
          0);
  }
}

TEST_CASE("the limit of this process can be read") { CHECK(cpu_quota().cpus >= 0); }
