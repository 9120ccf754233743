// SPDX-License-Identifier: Apache-2.0
#include "app/commands/doctor_cpus.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "layers/base/counted.h"
#include "layers/cpu/cpu_load.h"
#include "parallel/world/launch_check.h"

namespace convoy {

namespace {

constexpr double kBusyShare = 0.2;  // of the CPUs' time, which others take: from here on it is worth a warning

int number(const std::string& text) { return static_cast<int>(std::strtol(text.c_str(), nullptr, 10)); }

std::string bound(const CpuFacts& f) {
  return fmt::format("{} of {} CPUs may be used ({}{}{})", f.limits.mask.count(), f.node_cpus, f.limits.mask.str(),
                     f.numa.empty() ? "" : "; ", f.numa);
}

// CPUs whose time this rank may use.
double available(const CpuFacts& f) {
  const double cpus = f.limits.mask.count();
  return f.limits.quota.cpus > 0 ? std::min(cpus, f.limits.quota.cpus) : cpus;
}

CpuFinding check_binding(const CpuFacts& f) {
  const std::string text = (f.ranks > 1 ? rank_binding(f) : bound(f));
  if (f.limits.mask.count() > 1 || f.node_cpus <= std::max(1, f.ranks)) return {true, "binding", text};
  return {false, "binding",
          text + (f.ranks > 1 ? ": with fewer ranks than cores, use mpirun --bind-to none or --map-by slot:PE=N"
                              : ": only one thread will compute; look for taskset or a job's limit")};
}

CpuFinding check_load(const CpuFacts& f) {
  const std::string text = describe_cpus(f.limits.mask.count(), f.limits.quota.cpus, f.others);
  if (f.others.value_or(0) < kBusyShare) return {true, "load", text};
  return {false, "load", text + ": training gets what is left; waits block meanwhile (device.wait_policy)"};
}

// More threads than CPUs: of the ranks of a node together, or of one rank as variables ask for them.
CpuFinding check_threads(const CpuFacts& f) {
  const double cpus = available(f);
  const std::string have =
      f.limits.quota.cpus > 0 && f.limits.quota.cpus < f.limits.mask.count()
          ? fmt::format("the time of {:.3g} CPUs that a control group allows (cpu.max, cpu.cfs_quota_us)", cpus)
          : fmt::format("the {} that may be used", counted(f.limits.mask.count(), "CPU"));
  if (number(f.slurm_cpus) > cpus) {
    return {false, "threads",
            fmt::format("SLURM_CPUS_PER_TASK={} is more than {}: set device.threads to that number, or pass "
                        "--cpus-per-task to srun",
                        f.slurm_cpus, have)};
  }
  if (f.local_ranks > f.node_cpus || (f.limits.quota.cpus > 0 && f.local_ranks > cpus)) {
    return {false, "threads",
            fmt::format("{} on this node are more than {}: start fewer, or ask for more CPUs",
                        counted(f.local_ranks, "rank"),
                        f.local_ranks > f.node_cpus ? "its " + counted(f.node_cpus, "CPU") : have)};
  }
  if (number(f.omp_threads) > cpus) {
    return {false, "threads",
            fmt::format("OMP_NUM_THREADS={} is more than {}; convoy goes by device.threads: leave it at 0",
                        f.omp_threads, have)};
  }
  if (f.omp_threads.empty()) {
    return {true, "threads", "device.threads = 0 takes a rank's share of its node's cores"};
  }
  return {true, "threads", fmt::format("OMP_NUM_THREADS={} is set; convoy goes by device.threads", f.omp_threads)};
}

}  // namespace

CpuFacts read_cpu_facts() {
  const Environment environment = process_environment();
  const LaunchFacts launch = read_launch_facts(environment);
  CpuFacts facts;
  facts.limits = current_cpu_limits();
  facts.node_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.numa = describe_numa(facts.limits.mask);
  facts.rank = launch.rank;
  facts.ranks = std::max({launch.open_mpi_size, launch.pmi_size, launch.slurm_step_tasks});
  facts.local_ranks = number(environment("OMPI_COMM_WORLD_LOCAL_SIZE").value_or("0"));
  facts.omp_threads = environment("OMP_NUM_THREADS").value_or("");
  facts.slurm_cpus = environment("SLURM_CPUS_PER_TASK").value_or("");
  if (facts.rank > 0) return facts;  // one rank reports the load
  const auto mine = [&](int cpu) { return facts.limits.mask.has(cpu); };
  const CpuReading before = read_cpus(mine);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const CpuReading after = read_cpus(mine);
  facts.others = others_share(before.cpus, after.cpus, after.own - before.own);
  return facts;
}

std::vector<CpuFinding> cpu_findings(const CpuFacts& facts) {
  return {check_binding(facts), check_load(facts), check_threads(facts)};
}

std::string rank_binding(const CpuFacts& facts) { return fmt::format("rank {}: {}", facts.rank, bound(facts)); }

}  // namespace convoy
