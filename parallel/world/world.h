// SPDX-License-Identifier: Apache-2.0
//
// MPI_Init and MPI_Finalize, and the placement of this rank: node, CPUs, threads. The main program owns the one World,
// outside its try block, so that abort() works while an error is handled. Construction is collective; so is destruction
// after a normal run or a collective error. Invariant: MPI calls return their errors (MPI_ERRORS_RETURN), and the ranks
// of a node are found by MPI, never by rank % n. A World also runs the watchdogs for missing ranks (watchdog.h) and for
// the launcher (launcher_watchdog.h).
#pragma once

#include <memory>
#include <string>

#include "layers/cpu/cpu_load.h"
#include "parallel/comm/rank_group.h"
#include "parallel/world/cpu_binding.h"
#include "parallel/world/launch_check.h"

namespace convoy {

class LauncherWatchdog;
class Watchdog;

class World {
 public:
  /// Checks the launch, then starts MPI. Throws a collective usage Error for a launch that cannot work. The process
  /// ends with exit code 1 when the other ranks do not come within 300 s, or what CONVOY_START_TIMEOUT says.
  explicit World(const Environment& environment = process_environment());
  /// Calls MPI_Finalize, except during stack unwinding or after abandoned operations: the process then ends without it
  /// and does not wait for other ranks, and the launcher ends the job. So does the process when its time is over.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Rank and number of ranks on this node (ranks that share memory).
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] int local_size() const { return local_size_; }
  [[nodiscard]] int node_count() const { return node_count_; }
  /// The rank of the first rank on this node.
  [[nodiscard]] int node() const { return node_; }
  [[nodiscard]] const std::string& host() const { return host_; }

  /// Number of threads for this rank's computations, at least 1.
  [[nodiscard]] int thread_share() const { return binding_.threads; }
  /// One line on where this rank may run, for `doctor`.
  [[nodiscard]] const std::string& binding() const { return binding_.report; }

  /// The CPUs that this rank may use, and the quota of its control group.
  [[nodiscard]] const CpuLimits& cpu_limits() const { return limits_; }
  /// How busy they were at the start of this object, to be compared with later (layers/cpu/cpu_load.h).
  [[nodiscard]] const CpuReading& load_at_start() const { return load_at_start_; }

  /// How long ranks may wait for each other at the end, in seconds: 600 until it is set. Not below 20.
  void set_timeout(double seconds);
  /// The group of all ranks.
  [[nodiscard]] RankGroup ranks() const { return world_group(); }

  /// Ends every rank of the job at once with this exit code. Any rank may call it, from any thread.
  [[noreturn]] void abort(int code) const noexcept;

  /// The MPI that convoy was built with; needs no World.
  [[nodiscard]] static MpiLibrary mpi_library();
  /// The rank according to the launcher's variables, 0 without a launcher: only rank 0 reports a launch error, when
  /// there is no World.
  [[nodiscard]] static int launch_rank();

 private:
  void find_node();

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int node_count_ = 1;
  int node_ = 0;
  int exceptions_at_start_ = 0;
  double end_timeout_ = 600;
  std::string host_;
  CpuLimits limits_;
  CpuReading load_at_start_;
  CpuBinding binding_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<LauncherWatchdog> launcher_watchdog_;
};

}  // namespace convoy
