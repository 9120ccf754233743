// SPDX-License-Identifier: Apache-2.0
//
// The command lines that start ranks: mpirun's and srun's. Pure except the two functions that ask the programs
// themselves. Invariant: a host gets exactly its slots in ranks, neighbouring ranks on one host.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/launch/host_list.h"

namespace convoy {

enum class LauncherKind { kMpirun, kSrun };

struct Launcher {
  LauncherKind kind = LauncherKind::kMpirun;
  std::vector<std::string> arguments;  ///< the user's
  std::vector<std::string> program;    ///< convoy train ...

  [[nodiscard]] const char* name() const { return kind == LauncherKind::kSrun ? "srun" : "mpirun"; }
  [[nodiscard]] std::vector<std::string> command(const HostList& hosts) const;
  /// Starts nothing of note on one host: whether anything can be started there.
  [[nodiscard]] std::vector<std::string> probe(const std::string& host) const;
};

/// What "auto", "mpirun" or "srun" means here. slurm: whether the hosts are those of a Slurm allocation.
[[nodiscard]] LauncherKind choose_launcher(const std::string& word, bool slurm);

/// Throws a usage Error when there is no such program.
void check_launcher(const Launcher& launcher);

}  // namespace convoy
