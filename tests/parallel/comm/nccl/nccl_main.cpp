// SPDX-License-Identifier: Apache-2.0
//
// Runs the tests of NCCL on every rank. A failure on any rank is everybody's exit code; a hang ends the job. Ends with
// 77 (skipped) where there is no GPU. On the host (tests/layers/backend/cuda/host) each rank has one that is imitated.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>

#include "layers/backend/cuda_devices.h"
#include "tests/parallel/comm/nccl/nccl_fixture.h"

namespace convoy {

namespace {

World* the_world = nullptr;
CudaBackend* the_backend = nullptr;
int the_device = 0;

#ifdef CONVOY_CUDA_ON_HOST
int gpus() { return 1; }
#else
int gpus() {
  const CudaReport report = cuda_report();
  if (report.devices.empty()) fmt::print("skipped, no GPU: {}\n", report.problem);
  return static_cast<int>(report.devices.size());
}
#endif

void end_hanging_job(int) {
  constexpr char kMessage[] = "nccl tests: a test hangs, the job is aborted\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace

World& test_world() { return *the_world; }
CudaBackend& test_backend() { return *the_backend; }
int test_device() { return the_device; }

}  // namespace convoy

int main(int argc, char** argv) {
  const int gpus = convoy::gpus();
  if (gpus == 0) return 77;
  std::signal(SIGALRM, convoy::end_hanging_job);
  alarm(280);
  convoy::World world;
  convoy::the_world = &world;
  convoy::the_device = world.local_rank() % gpus;
  convoy::CudaOptions options;
  options.device = convoy::the_device;
  options.compute = convoy::DType::kBF16;
  convoy::CudaBackend backend(options);
  convoy::the_backend = &backend;
  doctest::Context context(argc, argv);
  if (world.rank() != 0) context.setOption("minimal", true);
  const int mine = context.run();
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  return all;
}
