// SPDX-License-Identifier: Apache-2.0
//
// convoy doctor: one line for each thing that a run needs, `ok`, `warn` with what to do, or `fail` with what to do.
// Starts no MPI: it reads the variables that launchers set, so that it also works where MPI cannot start.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include "app/base/memory_limit.h"
#include "app/base/version.h"
#include "app/commands/commands.h"
#include "app/commands/doctor_cpus.h"
#include "app/commands/doctor_report.h"
#include "io/files/atomic_file.h"
#include "io/hdf5/hdf5.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "parallel/world/world.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void check_versions(Report& report) {
  report.ok("convoy", fmt::format("{}, built with {}", program_version(), compiler_version()));
  report.ok("MPI", World::mpi_library().version);
  report.ok("HDF5", hdf5::library_version());
}

void check_cpu(Report& report) {
  report.ok("CPU", OnednnBackend::library_description());
  report.ok("bf16", OnednnBackend::multiplies_bf16()
                        ? "this CPU multiplies in bfloat16"
                        : "activations in bfloat16 save memory; products are taken in float32, which is faster here");
}

void check_memory(Report& report) {
  const double gib = 1024.0 * 1024.0 * 1024.0;
  const std::string meminfo = file_text("/proc/meminfo").value_or("");
  const auto in_gib = [&](const char* key) { return std::max(0.0, keyed_number(meminfo, key)) / gib; };
  const double total = in_gib("MemTotal"), free = in_gib("MemAvailable");
  const std::string text = fmt::format("{:.1f} GiB free of {:.1f} GiB", free, total);
  double allowed = free;
  for (const HostMemoryLimit& limit : memory_limits()) allowed = std::min(allowed, limit.free / gib);
  const std::string where = allowed < free ? fmt::format("{}, this job may use {:.1f} GiB", text, allowed) : text;
  if (allowed < 2) {
    report.warn("memory", where + ": ResNets at 224x224 may not fit; use a smaller train.global_batch_size");
  } else {
    report.ok("memory", where);
  }
  std::error_code error;
  const fs::space_info shared = fs::space("/dev/shm", error);
  if (!error && shared.available < (64u << 20)) {
    report.warn("/dev/shm",
                fmt::format("{} MiB free: ranks of one node exchange data there; make it larger (docker run "
                            "--shm-size=1g)",
                            shared.available >> 20));
  }
}

void check_launch(Report& report) {
  const LaunchFacts facts = read_launch_facts(process_environment());
  const MpiLibrary mpi = World::mpi_library();
  const bool open_mpi = mpi.family == MpiFamily::kOpenMpi;
  try {
    check_launch_before_init(facts, mpi);
  } catch (const Error& error) {
    std::string text = error.what();
    for (char& c : text) c = c == '\n' ? ' ' : c;
    report.fail("launch", text);
    return;
  }
  const char* pmix = facts.pmix ? "with PMIx" : "without PMIx";
  if (open_mpi && facts.pmi_size > 1) {
    report.fail("launch",
                fmt::format("{} ranks by another MPI's launcher: convoy was built with {}; use its mpirun, or build "
                            "convoy with the launcher's MPI",
                            facts.pmi_size, mpi.version));
  } else if (facts.open_mpi_size > 0) {
    report.ok("launch", fmt::format("mpirun, {} ranks, {}", facts.open_mpi_size, pmix));
  } else if (facts.hydra) {
    report.ok("launch", fmt::format("mpirun, {} ranks, with PMI", facts.pmi_size));
  } else if (facts.slurm_step_tasks > 0) {
    report.ok("launch",
              fmt::format("srun, {} tasks, {}", facts.slurm_step_tasks, facts.pmi_size > 0 ? "with PMI" : pmix));
  } else {
    report.ok("launch", fmt::format("started plainly: one rank (several: mpirun -n N convoy ..., or srun {})",
                                    open_mpi ? "--mpi=pmix" : "--mpi=pmi2"));
  }
  if (open_mpi && geteuid() == 0 && variable("OMPI_ALLOW_RUN_AS_ROOT").empty()) {
    report.warn("root",
                "Open MPI's mpirun refuses to run as root: set OMPI_ALLOW_RUN_AS_ROOT=1 and "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or use another account");
  }
}

/// Writes and reads back a small HDF5 file where runs are kept by default.
void check_disk(Report& report) {
  const fs::path folder = fs::is_directory("runs") ? "runs" : ".";
  const fs::path path = folder / fmt::format(".convoy-doctor-{}.h5", getpid());
  std::error_code ignored;
  try {
    hdf5::FileImage image(path.string(), 4096);
    image.write_attribute("/", "doctor", std::int64_t{42});
    const auto bytes = image.bytes();
    write_file_atomically(path.string(), bytes);
    const auto value = hdf5::File(path.string()).int_attribute("/", "doctor");
    if (value != 42) convoy::fail("{} reads back differently", path.string());
    const auto free = fs::space(folder, ignored).available >> 20;
    const std::string text = fmt::format("HDF5 files can be written, and read without file locks, in {} ({} MiB free)",
                                         fs::absolute(folder).lexically_normal().string(), free);
    if (free < 1024) {
      report.warn("disk", text + ": little room for checkpoints; set run.dir to a larger disk");
    } else {
      report.ok("disk", text);
    }
  } catch (const Error& error) {
    report.fail("disk", fmt::format("{}: set run.dir to a folder that you may write", error.what()));
  }
  fs::remove(path, ignored);
}

}  // namespace

int doctor_command() {
  Report report;
  if (World::launch_rank() != 0) {  // the first rank reports the rest
    report.ok("binding", rank_binding(read_cpu_facts()));
    std::cout << std::flush;
    return 0;
  }
  check_versions(report);
  check_cpu(report);
  check_gpus(report);
  for (const CpuFinding& each : cpu_findings(read_cpu_facts())) {
    if (each.fine) {
      report.ok(each.subject, each.text);
    } else {
      report.warn(each.subject, each.text);
    }
  }
  check_memory(report);
  check_launch(report);
  check_disk(report);
  std::cout << std::flush;
  return report.failed() ? static_cast<int>(ExitCode::kFailure) : 0;
}

}  // namespace convoy
