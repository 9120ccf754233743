// SPDX-License-Identifier: Apache-2.0
//
// The CPUs that a rank may use, and its number of threads, so that the ranks of a node do not oversubscribe it. Relies
// on the kernel's affinity mask, which mpirun and srun set; uses no MPI (World gathers the masks of a node). Invariant:
// a rank has at least one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/cpu/cpu_quota.h"

namespace convoy {

/// A set of CPUs, up to 8192.
struct CpuMask {
  std::array<std::uint64_t, 128> words{};

  [[nodiscard]] bool has(int cpu) const;
  void add(int cpu);
  [[nodiscard]] int count() const;
  /// "0-3,8"
  [[nodiscard]] std::string str() const;
  bool operator==(const CpuMask& other) const = default;
};

/// The CPUs that the calling thread may use.
[[nodiscard]] CpuMask current_cpu_mask();

/// What limits the CPU time of a rank.
struct CpuLimits {
  CpuMask mask;
  CpuQuota quota;
  bool operator==(const CpuLimits& other) const = default;
};

/// Equal on ranks with the same mask, with the same quota. Plain memory, so that ranks can exchange it as bytes.
struct CpuLimitsDigest {
  std::uint64_t mask = 0, quota = 0;
};
[[nodiscard]] CpuLimitsDigest digest_of(const CpuLimits& limits);

/// Those of the calling thread.
[[nodiscard]] CpuLimits current_cpu_limits();

/// CPUs and threads of a rank.
struct CpuBinding {
  /// This rank's share: CPUs of its mask / ranks of the node with the same mask, and no more than the quota of its
  /// control group / ranks of the node in that group, rounded down.
  int threads = 1;
  std::string report;  ///< one line for people
};

/// `own`: of this rank. `node_limits`: of every rank on the node, this one too. `node_cpus`: CPUs that the node has.
[[nodiscard]] CpuBinding share_cpus(const CpuLimits& own, const std::vector<CpuLimitsDigest>& node_limits,
                                    int node_cpus);

/// Which NUMA nodes the CPUs belong to: "NUMA node 0 of 2", "NUMA nodes 0-1 of 4"; empty where there is but one, or it
/// is not known. `node_lists` are the kernel's texts "0-3,8" of the CPUs of each node, in the order of their numbers.
[[nodiscard]] std::string describe_numa(const CpuMask& mask, const std::vector<std::string>& node_lists);
/// The same of this machine.
[[nodiscard]] std::string describe_numa(const CpuMask& mask);

}  // namespace convoy
