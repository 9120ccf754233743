// SPDX-License-Identifier: Apache-2.0
#include "app/launch/launcher.h"

#include <algorithm>
#include <cstdlib>

#include "app/base/error_report.h"
#include "app/launch/child_process.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> mpirun_command(const Launcher& launcher, const HostList& hosts) {
  std::vector<std::string> words{
      "mpirun",          "-n", std::to_string(count_slots(hosts)), "--host", describe_hosts(hosts, ','), "-x",
      kErrorFileVariable};
  append(words, launcher.arguments);
  append(words, launcher.program);
  return words;
}

// Slurm distributes ranks evenly, so all hosts must have the same slots.
std::vector<std::string> srun_command(const Launcher& launcher, const HostList& hosts) {
  const int slots = hosts.front().slots;
  std::string names;
  for (const Host& host : hosts) {
    if (host.slots != slots) {
      fail_usage(
          "launch: srun needs the same number of ranks on each host, but these differ: {} (give --nproc-per-node)",
          describe_hosts(hosts));
    }
    names += (names.empty() ? "" : ",") + host.name;
  }
  std::vector<std::string> words{"srun",
                                 "--mpi=pmix",
                                 fmt::format("--nodes={}", hosts.size()),
                                 "--nodelist=" + names,
                                 fmt::format("--ntasks={}", count_slots(hosts)),
                                 fmt::format("--ntasks-per-node={}", slots),
                                 "--kill-on-bad-exit=1"};
  // From Slurm 22.05 on a step does not inherit it.
  if (const char* cpus = std::getenv("SLURM_CPUS_PER_TASK")) words.push_back(fmt::format("--cpus-per-task={}", cpus));
  append(words, launcher.arguments);
  append(words, launcher.program);
  return words;
}

bool srun_has_pmix() {
  const Captured list = capture({"srun", "--mpi=list"}, std::chrono::seconds(10));
  return !list.timed_out && (list.output + list.errors).find("pmix") != std::string::npos;
}

}  // namespace

std::vector<std::string> Launcher::command(const HostList& hosts) const {
  return kind == LauncherKind::kSrun ? srun_command(*this, hosts) : mpirun_command(*this, hosts);
}

std::vector<std::string> Launcher::probe(const std::string& host) const {
  if (kind == LauncherKind::kSrun) return {"srun", "-w", host, "-N1", "-n1", "--overlap", "true"};
  std::vector<std::string> words{"mpirun", "-n", "1", "--host", host + ":1"};
  append(words, arguments);
  words.emplace_back("true");
  return words;
}

void check_launcher(const Launcher& launcher) {
  const Captured version = capture({launcher.name(), "--version"}, std::chrono::seconds(20));
  if (version.status.code != 127) return;
  fail_usage("launch: there is no {} in PATH (install it, or load its module)", launcher.name());
}

LauncherKind choose_launcher(const std::string& word, bool slurm) {
  if (word == "mpirun") return LauncherKind::kMpirun;
  if (word == "srun") {
    if (std::getenv("SLURM_JOB_ID") == nullptr) {
      fail_usage("--launcher: srun works only within a Slurm allocation (submit it with sbatch, or use mpirun)");
    }
    return LauncherKind::kSrun;
  }
  return slurm && srun_has_pmix() ? LauncherKind::kSrun : LauncherKind::kMpirun;
}

}  // namespace convoy
