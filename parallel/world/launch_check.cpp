// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/launch_check.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "layers/base/error.h"

namespace convoy {

namespace {

// The number in a variable; nothing when it is not set or not a whole number.
std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Every process of the launch checks by itself, so one of them reports for all.
[[noreturn]] void refuse(const std::string& message) {
  Error error(message, ExitCode::kUsage);
  error.set_collective();
  throw error;
}

[[noreturn]] void refuse_wrong_mpi(const char* variable, int count, const MpiLibrary& mpi) {
  refuse(
      fmt::format("the launcher started {} ranks ({}), but each is alone in its MPI world: the launcher belongs to "
                  "another MPI than the {} that convoy was built with\n"
                  "start it with that MPI's own mpirun, or build convoy with the launcher's MPI",
                  count, variable, mpi.version));
}

// What srun needs for ranks to find each other.
const char* srun_option(const MpiLibrary& mpi) {
  return mpi.family == MpiFamily::kOpenMpi ? "--mpi=pmix" : "--mpi=pmi2";
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

LaunchFacts read_launch_facts(const Environment& environment) {
  LaunchFacts facts;
  if (environment("SLURM_STEP_ID")) facts.slurm_step_tasks = number(environment, "SLURM_STEP_NUM_TASKS").value_or(0);
  facts.pmix = environment("PMIX_RANK").has_value() || environment("PMIX_NAMESPACE").has_value();
  facts.open_mpi_size = number(environment, "OMPI_COMM_WORLD_SIZE").value_or(0);
  facts.pmi_size = number(environment, "PMI_SIZE").value_or(0);
  facts.hydra = environment("MPI_LOCALNRANKS").has_value();
  // SLURM_PROCID comes last: below an mpirun that Slurm started it is the number of the node's daemon.
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto rank = number(environment, name)) {
      facts.rank = *rank;
      break;
    }
  }
  return facts;
}

void check_launch_before_init(const LaunchFacts& facts, const MpiLibrary& mpi) {
  if (mpi.family == MpiFamily::kMpich) {
    if (facts.open_mpi_size > 1 && facts.pmi_size == 0) {
      refuse_wrong_mpi("OMPI_COMM_WORLD_SIZE", facts.open_mpi_size, mpi);
    }
    return;  // it starts without a launcher in any place
  }
  if (facts.pmix) return;
  // In an allocation Hydra starts its daemons with srun: the step and its tasks are theirs.
  if (facts.hydra && facts.pmi_size > 1) refuse_wrong_mpi("PMI_SIZE", facts.pmi_size, mpi);
  if (facts.slurm_step_tasks < 1) return;
  if (facts.slurm_step_tasks == 1) {
    refuse(
        "srun started this task without PMIx, and in a step of Slurm Open MPI cannot start without it\n"
        "start it with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun -n 1 ...`");
  }
  refuse(
      fmt::format("srun started {} tasks without PMIx, so they cannot find each other\n"
                  "start them with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun ...`",
                  facts.slurm_step_tasks));
}

void check_launch_after_init(const LaunchFacts& facts, int world_size, const MpiLibrary& mpi) {
  if (world_size != 1) return;
  if (facts.open_mpi_size > 1) refuse_wrong_mpi("OMPI_COMM_WORLD_SIZE", facts.open_mpi_size, mpi);
  if (facts.open_mpi_size == 1) return;  // `mpirun -n 1`; Slurm's variables then describe mpirun's daemons
  if (facts.pmi_size > 1) refuse_wrong_mpi("PMI_SIZE", facts.pmi_size, mpi);
  if (facts.hydra) return;  // `mpirun -n 1`, as above
  if (facts.slurm_step_tasks > 1) {
    refuse(
        fmt::format("this is a step of {} tasks (SLURM_STEP_NUM_TASKS), but each is alone in its MPI world ({})\n"
                    "start them with `srun {} ...` or, inside the allocation, with `mpirun ...`",
                    facts.slurm_step_tasks, mpi.version, srun_option(mpi)));
  }
}

}  // namespace convoy
