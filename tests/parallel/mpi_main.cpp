// SPDX-License-Identifier: Apache-2.0
//
// Runs the MPI test cases on every rank. A failure on any rank is everybody's exit code; a hang ends the job.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>

#include "tests/parallel/mpi_fixture.h"

namespace convoy {

namespace {

World* the_world = nullptr;

void end_hanging_job(int) {
  constexpr char kMessage[] = "mpi tests: a test hangs, the job is aborted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace

World& test_world() { return *the_world; }

}  // namespace convoy

int main(int argc, char** argv) {
  std::signal(SIGALRM, convoy::end_hanging_job);
  alarm(200);
  convoy::World world;
  convoy::the_world = &world;
  doctest::Context context(argc, argv);
  if (world.rank() != 0) context.setOption("minimal", true);
  const int mine = context.run();
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  return all;
}
