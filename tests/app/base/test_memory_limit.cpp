// SPDX-License-Identifier: Apache-2.0
//
// Limits and counters of memory, read from made-up /proc and /sys/fs/cgroup.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/base/memory_limit.h"

using namespace convoy;

namespace {

constexpr double kGib = 1 << 30;

// A folder with files of a machine; removed at the end.
class Machine {
 public:
  Machine() : root_(std::filesystem::temp_directory_path() / ("convoy_memory_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(root_);
    file("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n");
    file("/proc/self/status", "Name:\tconvoy\nVmSize:\t  400 kB\nVmRSS:\t  200 kB\nVmData:\t  300 kB\n");
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_.string() + path).substr(0, (root_.string() + path).rfind('/')));
    std::ofstream(root_.string() + path) << text;
  }
  [[nodiscard]] std::string root() const { return root_.string(); }
  [[nodiscard]] const HostMemoryLimit* limit(const std::string& key) {
    limits_ = memory_limits(root());
    for (const HostMemoryLimit& one : limits_) {
      if (one.key == key) return &one;
    }
    return nullptr;
  }

 private:
  std::filesystem::path root_;
  std::vector<HostMemoryLimit> limits_;
};

void mount_v2(const Machine& m, const std::string& path) {
  m.file("/proc/self/cgroup", "0::" + path + "\n");
  m.file("/proc/self/mountinfo",
         "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n");
}

}  // namespace

TEST_CASE("the available memory of the node, and the process's own") {
  Machine m;
  REQUIRE(m.limit("node") != nullptr);
  CHECK(m.limit("node")->free == 8 * kGib);
  const ProcessMemory own = process_memory(m.root());
  CHECK(own.resident == 200 * 1024);
  CHECK(own.virtual_size == 400 * 1024);
  CHECK(own.data == 300 * 1024);
  CHECK(process_memory("/nonexistent").resident == 0);
  CHECK(memory_limits("/nonexistent").empty());
  CHECK(oom_kills("/nonexistent") == -1);
}

TEST_CASE("cgroup v2: the limits of the group and of those above it; cache counts as free") {
  Machine m;
  mount_v2(m, "/slurm/job_7/step_0");
  const std::string top = "/sys/fs/cgroup/slurm/job_7";
  m.file(top + "/step_0/memory.max", "max\n");
  m.file(top + "/step_0/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n");
  m.file(top + "/memory.max", "4294967296\n");
  m.file(top + "/memory.current", "2147483648\n");
  m.file(top + "/memory.stat", "anon 5\ninactive_file 536870912\nactive_file 536870912\n");
  m.file(top + "/memory.events", "oom 2\noom_kill 5\n");
  CHECK(m.limit("cgroup /slurm/job_7/step_0") == nullptr);  // max is none
  REQUIRE(m.limit("cgroup /slurm/job_7") != nullptr);
  CHECK(m.limit("cgroup /slurm/job_7")->free == 3 * kGib);
  CHECK(m.limit("cgroup /slurm/job_7")->name == "the memory limit of cgroup /slurm/job_7");
  const auto groups = memory_cgroups(m.root());
  REQUIRE(groups.size() == 2);  // the root has no limit file
  CHECK(groups[0].path == "/slurm/job_7/step_0");
  CHECK(oom_kills(m.root()) == 3);
  CHECK(oom_kills(groups[1]) == 5);
}

TEST_CASE("cgroup v2 in a container: its own group is the top") {
  Machine m;
  mount_v2(m, "/");
  m.file("/sys/fs/cgroup/memory.max", "1073741824\n");
  m.file("/sys/fs/cgroup/memory.current", "1073741824\n");
  REQUIRE(m.limit("cgroup /") != nullptr);
  CHECK(m.limit("cgroup /")->free == 0);
}

TEST_CASE("cgroup v1, beside a v2 hierarchy without controllers; a container that sees part of it") {
  Machine m;
  m.file("/proc/self/cgroup", "9:name=systemd:/\n4:cpuset,memory:/docker/abc/job\n1:cpu:/\n0::/\n");
  m.file("/proc/self/mountinfo",
         "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpuset,memory\n"
         "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  const std::string top = "/sys/fs/cgroup/memory";
  m.file(top + "/job/memory.limit_in_bytes", "2147483648\n");
  m.file(top + "/job/memory.usage_in_bytes", "1610612736\n");
  m.file(top + "/job/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  m.file(top + "/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  m.file(top + "/memory.limit_in_bytes", "9223372036854771712\n");
  REQUIRE(m.limit("cgroup /job") != nullptr);
  CHECK(m.limit("cgroup /job")->free == 1 * kGib);
  CHECK(m.limit("cgroup /") == nullptr);  // the largest number of pages is none
  CHECK(oom_kills(m.root()) == 2);
}

TEST_CASE("files that are damaged are left out") {
  Machine m;
  m.file("/proc/self/cgroup", "garbage\n0:\n::\n");
  m.file("/proc/self/mountinfo", "30\n\n- cgroup2\n");
  m.file("/proc/meminfo", "MemAvailable: many kB\n");
  CHECK(memory_limits(m.root()).empty());
  CHECK(keyed_number("oom_kill_disable 1\noom_kill 4", "oom_kill") == 4);
  CHECK(keyed_number("oom_kill", "oom_kill") == -1);
  CHECK(keyed_number("", "oom_kill") == -1);
}

TEST_CASE("limits of address space and of private memory are limits" * doctest::test_suite("kernel")) {
  Machine m;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  const rlimit limit{std::uint64_t{64} << 40, before.rlim_max};  // AddressSanitizer has reserved some 20 TiB
  if (before.rlim_max < limit.rlim_cur) return;
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  const HostMemoryLimit* found = m.limit("");
  REQUIRE(setrlimit(RLIMIT_DATA, &before) == 0);
  REQUIRE(found != nullptr);
  CHECK(found->free == 64 * 1024 * kGib - 300 * 1024);
}
