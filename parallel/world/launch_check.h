// SPDX-License-Identifier: Apache-2.0
//
// Detects launches that cannot work, from the environment variables of launchers, before MPI aborts (Open MPI 4 without
// PMIx under srun) or starts N independent jobs of one rank (Open MPI 5, MPICH, or the mpirun of another MPI). Pure
// functions of an environment; no MPI. The variables are read before MPI_Init, because MPI itself sets some of them.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace convoy {

/// Returns the value of an environment variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// The environment of this process.
[[nodiscard]] Environment process_environment();

/// The launcher's variables. Counts are 0 when they are not set.
struct LaunchFacts {
  int slurm_step_tasks = 0;  ///< SLURM_STEP_NUM_TASKS inside a step (SLURM_STEP_ID), else 0
  bool pmix = false;         ///< PMIX_RANK or PMIX_NAMESPACE is there
  int open_mpi_size = 0;     ///< OMPI_COMM_WORLD_SIZE: Open MPI's mpirun
  int pmi_size = 0;          ///< PMI_SIZE: Hydra, the mpirun of MPICH and Intel MPI; or srun --mpi=pmi2
  bool hydra = false;        ///< MPI_LOCALNRANKS, which Hydra sets and srun does not
  int rank = 0;              ///< this process's number in the launch
};

[[nodiscard]] LaunchFacts read_launch_facts(const Environment& environment);

/// The MPI that convoy was built with: it decides which launchers work.
enum class MpiFamily { kOpenMpi, kMpich };  // MPICH and what derives from it, such as Intel MPI and Cray MPICH
struct MpiLibrary {
  MpiFamily family = MpiFamily::kOpenMpi;
  std::string version;  ///< "Open MPI v4.1.4"
};

/// Throws a collective usage Error for the launcher of another MPI, and for a launch that would kill MPI_Init. Every
/// rank calls it.
void check_launch_before_init(const LaunchFacts& facts, const MpiLibrary& mpi);

/// Throws a collective usage Error when a world of one rank is part of a launch of several. Every rank calls it.
void check_launch_after_init(const LaunchFacts& facts, int world_size, const MpiLibrary& mpi);

}  // namespace convoy
