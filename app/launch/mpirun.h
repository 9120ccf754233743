// SPDX-License-Identifier: Apache-2.0
//
// The mpirun that starts ranks, and how those of Open MPI 4 (ORTE), Open MPI 5 (PRRTE) and MPICH (Hydra) differ: their
// options, the signals that they pass on to ranks, and how they report the end of a rank. docs/mpi.md has the table.
// Pure except find_mpirun(). Invariant: the rest of launch knows no family.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/launch/child_process.h"
#include "app/launch/host_list.h"
#include "parallel/world/launch_check.h"

namespace convoy {

enum class MpirunKind { kOrte, kPrrte, kHydra };

struct Mpirun {
  MpirunKind kind = MpirunKind::kOrte;
  std::string program = "mpirun";

  /// The command line up to the program: a host gets exactly its slots in ranks. Ranks inherit `variable`.
  [[nodiscard]] std::vector<std::string> words(const HostList& hosts, const std::string& variable) const;
  /// What its environment must have besides: Open MPI 4's mpirun sleeps for a second or two after it has told the
  /// ranks to end, before it kills them, even when all have ended. Ranks that end in order lose nothing by it: all have
  /// released what they hold when the first one exits. A variable that is set already stays.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> environment() const;
  /// Whether ranks receive this signal when mpirun does, and mpirun neither ends by it nor ends them.
  [[nodiscard]] bool passes_on(int signal) const;
  /// How the ranks ended, in the form of shells (128 + signal). `reported`: a rank has reported an error.
  [[nodiscard]] ExitStatus rank_status(const ExitStatus& status, bool reported) const;
};

/// The kind of the mpirun that prints this as its version; nothing if it is none of them.
[[nodiscard]] std::optional<MpirunKind> mpirun_kind(std::string_view version);

/// The first mpirun in PATH that belongs to this MPI, under the names that distributions give it where several MPIs are
/// installed. Throws a usage Error if there is none.
[[nodiscard]] Mpirun find_mpirun(const MpiLibrary& mpi);

}  // namespace convoy
