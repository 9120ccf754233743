// SPDX-License-Identifier: Apache-2.0
#include "app/launch/launcher.h"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "app/base/error_report.h"
#include "app/launch/child_process.h"
#include "app/launch/slurm_steps.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> mpirun_command(const Launcher& launcher, const HostList& hosts) {
  std::vector<std::string> words = launcher.mpirun.words(hosts, kErrorFileVariable);
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
                                 "--job-name=" + slurm_step_name(),
                                 "--mpi=" + launcher.srun_manager,
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

// The process managers of srun that this MPI can use, best first.
std::vector<std::string> srun_managers(MpiFamily family) {
  return family == MpiFamily::kOpenMpi ? std::vector<std::string>{"pmix"} : std::vector<std::string>{"pmi2", "pmix"};
}

// The first of them that this srun has; empty if it has none.
std::string srun_manager(MpiFamily family) {
  const Captured list = capture({"srun", "--mpi=list"}, std::chrono::seconds(10));
  if (list.timed_out) return "";
  for (const std::string& name : srun_managers(family)) {
    if ((list.output + list.errors).find(name) != std::string::npos) return name;
  }
  return "";
}

}  // namespace

std::vector<std::string> Launcher::command(const HostList& hosts) const {
  return kind == LauncherKind::kSrun ? srun_command(*this, hosts) : mpirun_command(*this, hosts);
}

std::vector<std::string> Launcher::probe(const std::string& host) const {
  if (kind == LauncherKind::kSrun) return {"srun", "-w", host, "-N1", "-n1", "--overlap", "true"};
  std::vector<std::string> words = mpirun.words({{host, 1}}, "");
  append(words, arguments);
  words.emplace_back("true");
  return words;
}

bool Launcher::passes_on(int signal) const {
  return kind == LauncherKind::kSrun ? signal == SIGUSR1 || signal == SIGUSR2 : mpirun.passes_on(signal);
}

ExitStatus Launcher::rank_status(const ExitStatus& status, bool reported) const {
  return kind == LauncherKind::kSrun ? status : mpirun.rank_status(status, reported);
}

Launcher choose_launcher(const std::string& word, bool slurm, const MpiLibrary& mpi) {
  Launcher launcher;
  if (word == "srun" && std::getenv("SLURM_JOB_ID") == nullptr) {
    fail_usage("--launcher: srun works only within a Slurm allocation (submit it with sbatch, or use mpirun)");
  }
  const std::string manager = word == "srun" || (word == "auto" && slurm) ? srun_manager(mpi.family) : "";
  if (word == "srun" || !manager.empty()) {
    if (manager.empty() && capture({"srun", "--version"}, std::chrono::seconds(20)).status.code == 127) {
      fail_usage("launch: there is no srun in PATH (install it, or load its module)");
    }
    launcher.kind = LauncherKind::kSrun;
    launcher.srun_manager = manager.empty() ? srun_managers(mpi.family).front() : manager;
    return launcher;
  }
  launcher.mpirun = find_mpirun(mpi);
  return launcher;
}

}  // namespace convoy
