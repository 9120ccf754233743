// SPDX-License-Identifier: Apache-2.0
//
// The start and the end of MPI, and what a rank knows about its surroundings. The main program owns the
// one World, outside its try block, so that abort() works while an error is handled. Every rank creates it
// and, after an orderly run or a collective error, destroys it; both are collective. Invariant: MPI calls
// return their errors (MPI_ERRORS_RETURN), and ranks of a node are found by MPI, never by rank % n.
// While it lives, ranks can find out who is missing (watchdog.h), and end when their launcher has gone
// (launcher_watchdog.h).
#pragma once

#include <memory>
#include <string>

#include "parallel/comm/rank_group.h"
#include "parallel/world/cpu_binding.h"
#include "parallel/world/launch_check.h"

namespace convoy {

class LauncherWatchdog;
class Watchdog;

class World {
 public:
  /// Checks the launch, then starts MPI. Throws a collective usage Error for a launch that cannot work.
  explicit World(const Environment& environment = process_environment());
  /// Ends MPI in order. When an exception is passing, or operations had to be abandoned, it does not wait
  /// for the other ranks: the process then ends without MPI_Finalize, and the launcher ends the job.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Rank and number of ranks on this node (ranks that share memory).
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] int local_size() const { return local_size_; }
  [[nodiscard]] int node_count() const { return node_count_; }
  [[nodiscard]] const std::string& host() const { return host_; }

  /// Number of threads for this rank's computations, at least 1.
  [[nodiscard]] int thread_share() const { return binding_.threads; }
  /// One line on where this rank may run, for `doctor`.
  [[nodiscard]] const std::string& binding() const { return binding_.report; }

  /// All ranks, to make communicators from.
  [[nodiscard]] RankGroup ranks() const { return world_group(); }

  /// Ends every rank of the job at once with this exit code. Any rank may call it, from any thread.
  [[noreturn]] void abort(int code) const noexcept;

  /// "Open MPI v4.1.4"; needs no World.
  [[nodiscard]] static std::string mpi_version();
  /// This process's number as the launcher's variables give it, 0 without a launcher: decides who reports
  /// a launch error, when there is no World to ask.
  [[nodiscard]] static int launch_rank();

 private:
  void find_node();

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int node_count_ = 1;
  int exceptions_at_start_ = 0;
  std::string host_;
  CpuBinding binding_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<LauncherWatchdog> launcher_watchdog_;
};

}  // namespace convoy
