// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "app/commands/doctor_cpus.h"

#include <doctest/doctest.h>

namespace convoy {

namespace {

CpuFacts facts_of(const std::vector<int>& cpus, int node_cpus, double quota = 0) {
  CpuFacts facts;
  for (const int cpu : cpus) facts.limits.mask.add(cpu);
  facts.limits.quota.cpus = quota;
  facts.node_cpus = node_cpus;
  return facts;
}

std::string line(const CpuFacts& facts, const std::string& subject) {
  for (const CpuFinding& each : cpu_findings(facts)) {
    if (each.subject == subject) return (each.fine ? "ok " : "warn ") + each.text;
  }
  return "";
}

}  // namespace

TEST_CASE("doctor: binding, with NUMA nodes and the rank") {
  CpuFacts facts = facts_of({0, 1, 2, 3}, 8);
  CHECK(line(facts, "binding") == "ok 4 of 8 CPUs may be used (0-3)");
  facts.numa = "NUMA node 0 of 2";
  CHECK(line(facts, "binding") == "ok 4 of 8 CPUs may be used (0-3; NUMA node 0 of 2)");
  facts.ranks = 2;
  CHECK(line(facts, "binding") == "ok rank 0: 4 of 8 CPUs may be used (0-3; NUMA node 0 of 2)");
  facts.rank = 1;
  CHECK(rank_binding(facts) == "rank 1: 4 of 8 CPUs may be used (0-3; NUMA node 0 of 2)");
}

TEST_CASE("doctor: a rank that is bound to one core") {
  CpuFacts facts = facts_of({1}, 4);
  CHECK(line(facts, "binding") ==
        "warn 1 of 4 CPUs may be used (1): only one thread will compute; look for taskset or a job's limit");
  facts.ranks = 2;
  CHECK(line(facts, "binding") ==
        "warn rank 0: 1 of 4 CPUs may be used (1): with fewer ranks than cores, use mpirun --bind-to none or --map-by "
        "slot:PE=N");
  facts.ranks = 4;
  CHECK(line(facts, "binding") == "ok rank 0: 1 of 4 CPUs may be used (1)");
}

TEST_CASE("doctor: how busy the CPUs are") {
  CpuFacts facts = facts_of({0, 1}, 2);
  CHECK(line(facts, "load") == "ok 2 CPUs");
  facts.others = 0.04;
  CHECK(line(facts, "load") == "ok 2 CPUs, 4 % busy with other work");
  facts.others = 0.37;
  CHECK(line(facts, "load") ==
        "warn 2 CPUs, 37 % busy with other work: training gets what is left; waits block meanwhile "
        "(device.wait_policy)");
  CHECK(line(facts_of({0, 1}, 2, 1.5), "load") == "ok 2 CPUs (a control group allows the time of 1.5)");
}

TEST_CASE("doctor: more threads than CPUs") {
  CpuFacts facts = facts_of({0, 1}, 4);
  CHECK(line(facts, "threads") == "ok device.threads = 0 takes a rank's share of its node's cores");
  facts.omp_threads = "2";
  CHECK(line(facts, "threads") == "ok OMP_NUM_THREADS=2 is set; convoy goes by device.threads");
  facts.omp_threads = "3";
  CHECK(
      line(facts, "threads") ==
      "warn OMP_NUM_THREADS=3 is more than the 2 CPUs that may be used; convoy goes by device.threads: leave it at 0");
  facts.limits.quota.cpus = 1.5;
  facts.omp_threads = "2";
  CHECK(line(facts, "threads") ==
        "warn OMP_NUM_THREADS=2 is more than the time of 1.5 CPUs that a control group allows (cpu.max, "
        "cpu.cfs_quota_us); convoy goes by device.threads: leave it at 0");
  facts.limits.quota.cpus = 0;
  facts.slurm_cpus = "8";
  CHECK(line(facts, "threads") ==
        "warn SLURM_CPUS_PER_TASK=8 is more than the 2 CPUs that may be used: set device.threads to that number, or "
        "pass --cpus-per-task to srun");
  facts.slurm_cpus = "2";
  facts.omp_threads = "not a number";
  CHECK(line(facts, "threads").starts_with("ok "));
}

TEST_CASE("doctor: more ranks than CPUs") {
  CpuFacts facts = facts_of({0, 1}, 2);
  facts.local_ranks = 2;
  CHECK(line(facts, "threads").starts_with("ok "));
  facts.local_ranks = 5;
  CHECK(line(facts, "threads") ==
        "warn 5 ranks on this node are more than its 2 CPUs: start fewer, or ask for more CPUs");
  facts.local_ranks = 2;
  facts.limits.quota.cpus = 1;
  CHECK(line(facts, "threads") ==
        "warn 2 ranks on this node are more than the time of 1 CPUs that a control group allows (cpu.max, "
        "cpu.cfs_quota_us): start fewer, or ask for more CPUs");
}

TEST_CASE("doctor: this machine") {
  const CpuFacts facts = read_cpu_facts();
  CHECK(facts.limits.mask.count() >= 1);
  CHECK(facts.node_cpus >= facts.limits.mask.count());
  CHECK(cpu_findings(facts).size() == 3);
}

}  // namespace convoy
