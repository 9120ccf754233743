// SPDX-License-Identifier: Apache-2.0
#include "parallel/world/launch_check.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>

#include "layers/base/error.h"

namespace convoy {

namespace {

using Variables = std::map<std::string, std::string>;

LaunchFacts facts_of(const Variables& variables) {
  return read_launch_facts([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const MpiLibrary kOpenMpi{MpiFamily::kOpenMpi, "Open MPI v4.1.4"};
const MpiLibrary kMpich{MpiFamily::kMpich, "MPICH 4.0.2"};

// The complaint before MPI_Init, or else the one after it in a world of this size, or "fine".
std::string verdict(const Variables& variables, int world_size, const MpiLibrary& mpi = kOpenMpi) {
  try {
    check_launch_before_init(facts_of(variables), mpi);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    CHECK(error.collective());
    return std::string("before: ") + error.what();
  }
  try {
    check_launch_after_init(facts_of(variables), world_size, mpi);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    CHECK(error.collective());
    return std::string("after: ") + error.what();
  }
  return "fine";
}

}  // namespace

TEST_CASE("launches that work") {
  CHECK(verdict({}, 1) == "fine");
  // mpirun on a workstation
  const Variables mpirun = {
      {"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "123"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  CHECK(verdict(mpirun, 2) == "fine");
  // srun --mpi=pmix
  const Variables srun = {{"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_PROCID", "2"},
                          {"PMIX_RANK", "2"},
                          {"PMIX_NAMESPACE", "slurm.pmix.1.0"}};
  CHECK(verdict(srun, 4) == "fine");
  // a shell in an allocation, or a batch script, needs no PMIx
  CHECK(verdict({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}}, 1) == "fine");
  CHECK(verdict({{"SLURM_STEP_NUM_TASKS", "8"}}, 1) == "fine");
  // mpirun -n 1 in an allocation of two nodes: the step is that of mpirun's daemons
  CHECK(verdict(
            {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
            1) == "fine");
}

TEST_CASE("srun without PMIx is refused before MPI_Init, with two lines") {
  const std::string text = verdict({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}}, 1);
  CHECK(text ==
        "before: srun started 4 tasks without PMIx, so they cannot find each other\n"
        "start them with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun ...`");
  // one task, or a shell that srun started
  CHECK(verdict({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, 1) ==
        "before: srun started this task without PMIx, and in a step of Slurm Open MPI cannot start without it\n"
        "start it with `srun --mpi=pmix ...` or, inside the allocation, with `mpirun -n 1 ...`");
  // PMI-2 does not help Open MPI
  CHECK(verdict({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, 2)
            .find("before: srun started 2 tasks") == 0);
}

TEST_CASE("the mpirun of another MPI is refused before MPI_Init") {
  const std::string text =
      "before: the launcher started 4 ranks (PMI_SIZE), but each is alone in its MPI world: the launcher belongs to "
      "another MPI than the Open MPI v4.1.4 that convoy was built with\n"
      "start it with that MPI's own mpirun, or build convoy with the launcher's MPI";
  const Variables hydra{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK(verdict(hydra, 1) == text);
  // In an allocation Hydra's daemons are the step.
  Variables in_a_step = hydra;
  in_a_step.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(verdict(in_a_step, 1) == text);

  const Variables open_mpi{{"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  CHECK(verdict(open_mpi, 1, kMpich) ==
        "before: the launcher started 2 ranks (OMPI_COMM_WORLD_SIZE), but each is alone in its MPI world: the launcher "
        "belongs to another MPI than the MPICH 4.0.2 that convoy was built with\n"
        "start it with that MPI's own mpirun, or build convoy with the launcher's MPI");
}

TEST_CASE("launches of MPICH") {
  const Variables hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK(verdict(hydra, 2, kMpich) == "fine");
  CHECK(verdict({{"PMI_RANK", "0"},
                 {"PMI_SIZE", "1"},
                 {"MPI_LOCALNRANKS", "1"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"}},
                1, kMpich) == "fine");  // mpirun -n 1 in an allocation of two nodes
  CHECK(verdict({}, 1, kMpich) == "fine");
  const Variables step{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}};
  CHECK(verdict(step, 1, kMpich) ==
        "after: this is a step of 4 tasks (SLURM_STEP_NUM_TASKS), but each is alone in its MPI world (MPICH 4.0.2)\n"
        "start them with `srun --mpi=pmi2 ...` or, inside the allocation, with `mpirun ...`");
  Variables pmi2 = step;
  pmi2.insert({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  CHECK(verdict(pmi2, 4, kMpich) == "fine");
  CHECK(verdict({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, 1, kMpich) == "fine");
}

TEST_CASE("ranks that do not see each other are refused after MPI_Init") {
  const std::string slurm = verdict({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "3"}}, 1);
  CHECK(slurm.find("after: this is a step of 4 tasks") == 0);
  CHECK(slurm.find("srun --mpi=pmix") != std::string::npos);
  const std::string mpich = verdict({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}}, 1);
  CHECK(mpich.find("after: the launcher started 8 ranks (PMI_SIZE)") == 0);
  CHECK(mpich.find("Open MPI v4.1.4") != std::string::npos);
  CHECK(
      verdict({{"OMPI_COMM_WORLD_SIZE", "3"}}, 1).find("after: the launcher started 3 ranks (OMPI_COMM_WORLD_SIZE)") ==
      0);
  CHECK(verdict({{"PMI_RANK", "1"}, {"PMI_SIZE", "8"}}, 8) == "fine");
}

TEST_CASE("numbers that are none count as not set") {
  CHECK(facts_of({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "many"}}).slurm_step_tasks == 0);
  CHECK(facts_of({{"PMI_SIZE", "4x"}}).pmi_size == 0);
  CHECK(facts_of({{"PMI_SIZE", ""}}).pmi_size == 0);
  CHECK(facts_of({{"PMI_SIZE", "99999999999999"}}).pmi_size == 0);
}

TEST_CASE("the process's number in the launch") {
  CHECK(facts_of({}).rank == 0);
  CHECK(facts_of({{"SLURM_PROCID", "3"}}).rank == 3);
  CHECK(facts_of({{"SLURM_PROCID", "1"}, {"PMIX_RANK", "5"}}).rank == 5);
  CHECK(facts_of({{"PMI_RANK", "2"}}).rank == 2);
  CHECK(facts_of({{"OMPI_COMM_WORLD_RANK", "4"}}).rank == 4);
}

TEST_CASE("the environment of this process") {
  CHECK(process_environment()("PATH").has_value());
  CHECK_FALSE(process_environment()("CONVOY_NO_SUCH_VARIABLE").has_value());
}

}  // namespace convoy
