// SPDX-License-Identifier: Apache-2.0
//
// The command lines that start ranks: mpirun's and srun's. Pure except the functions that ask the programs themselves.
// Invariant: a host gets exactly its slots in ranks, neighbouring ranks on one host.
#pragma once

#include <string>
#include <vector>

#include "app/launch/host_list.h"
#include "app/launch/mpirun.h"

namespace convoy {

enum class LauncherKind { kMpirun, kSrun };

struct Launcher {
  LauncherKind kind = LauncherKind::kMpirun;
  Mpirun mpirun;
  std::string srun_manager = "pmix";   ///< srun --mpi=...
  std::vector<std::string> arguments;  ///< the user's
  std::vector<std::string> program;    ///< convoy train ...

  [[nodiscard]] const char* name() const { return kind == LauncherKind::kSrun ? "srun" : "mpirun"; }
  [[nodiscard]] std::vector<std::string> command(const HostList& hosts) const;
  /// Starts nothing of note on one host: whether anything can be started there.
  [[nodiscard]] std::vector<std::string> probe(const std::string& host) const;
  /// Whether ranks receive this signal when the launcher does.
  [[nodiscard]] bool passes_on(int signal) const;
  /// How the ranks ended (Mpirun::rank_status).
  [[nodiscard]] ExitStatus rank_status(const ExitStatus& status, bool reported) const;
};

/// What "auto", "mpirun" or "srun" means here, without arguments and program. `slurm`: whether the hosts are those of a
/// Slurm allocation. Throws a usage Error when there is no such launcher.
[[nodiscard]] Launcher choose_launcher(const std::string& word, bool slurm, const MpiLibrary& mpi);

}  // namespace convoy
