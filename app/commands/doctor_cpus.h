// SPDX-License-Identifier: Apache-2.0
//
// What convoy doctor says about CPUs: binding, load and number of threads. Pure functions of what was read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/world/cpu_binding.h"

namespace convoy {

struct CpuFacts {
  CpuLimits limits;
  int node_cpus = 1;
  std::string numa;              ///< as describe_numa() says
  int rank = 0;                  ///< of the launch
  int ranks = 0;                 ///< of the launch; 0: there is none
  int local_ranks = 0;           ///< on this node; 0: unknown
  std::string omp_threads;       ///< OMP_NUM_THREADS
  std::string slurm_cpus;        ///< SLURM_CPUS_PER_TASK
  std::optional<double> others;  ///< the share of the CPUs' time that others take; nothing: unknown
};

/// Of this process; samples the load for a fifth of a second.
[[nodiscard]] CpuFacts read_cpu_facts();

struct CpuFinding {
  bool fine = true;
  const char* subject = "";
  std::string text;
};

[[nodiscard]] std::vector<CpuFinding> cpu_findings(const CpuFacts& facts);

/// "rank 1: 1 of 2 CPUs may be used (1)"
[[nodiscard]] std::string rank_binding(const CpuFacts& facts);

}  // namespace convoy
