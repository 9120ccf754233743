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

namespace convoy {

/// A set of CPUs, up to 8192. Plain memory, so that ranks can exchange it as bytes.
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

/// CPUs and threads of a rank.
struct CpuBinding {
  int threads = 1;     ///< this rank's share: CPUs of its mask / ranks of the node with the same mask
  std::string report;  ///< one line for people
};

/// `node_masks` holds the mask of every rank on the node, `self` is this rank's place among them (its local
/// rank), `node_cpus` the number of CPUs that the node has.
[[nodiscard]] CpuBinding share_cpus(const std::vector<CpuMask>& node_masks, int self, int node_cpus);

}  // namespace convoy
