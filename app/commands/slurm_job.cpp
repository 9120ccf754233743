// SPDX-License-Identifier: Apache-2.0
//
// convoy slurm-job: what the batch scripts in slurm/ need of the program. It is not in --help, since only those scripts
// call it. It may run in a container that has no Slurm, so it prints the shell commands that requeue the job, and the
// script runs them.
#include <cstdlib>
#include <iostream>

#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

std::string newest_checkpoint(const TrainArguments& train) {
  const auto files = list_checkpoints(checkpoint_folder(read_config(train.config, train.overrides)));
  return files.empty() ? "" : files.back().path;
}

// scontrol would take the number of an array for all of its tasks.
std::string job_id() {
  const char* array = std::getenv("SLURM_ARRAY_JOB_ID");
  const char* task = std::getenv("SLURM_ARRAY_TASK_ID");
  if (array != nullptr && task != nullptr) return fmt::format("{}_{}", array, task);
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) fail_usage("slurm-job: there is no SLURM_JOB_ID in the environment (it runs in a Slurm job)");
  return job;
}

// A job that is being cancelled is not requeued: either its user wants that, or Slurm requeues it by itself.
std::string requeue_commands(const std::string& job) {
  return fmt::format(
      R"sh(if scontrol show job -o {0} | grep -q ' JobState=RUNNING '; then
  if scontrol requeue {0}; then
    echo "slurm: job {0} stopped with a checkpoint and waits in the queue to resume" >&2
  else
    echo "slurm: job {0} stopped with a checkpoint and cannot be requeued (submit it again to resume)" >&2
  fi
fi
)sh",
      job);
}

}  // namespace

int slurm_job_command(const SlurmJobArguments& arguments) {
  using enum SlurmJobAction;
  switch (arguments.action) {
    case kRunName: {
      std::cout << read_config(arguments.train.config, arguments.train.overrides).run.name << std::endl;
      break;
    }
    case kNewestCheckpoint: std::cout << newest_checkpoint(arguments.train) << std::endl; break;
    case kEnd:
      if (arguments.exit_code != static_cast<int>(ExitCode::kStopped)) break;
      if (newest_checkpoint(arguments.train) == arguments.checkpoint_before) {
        std::cerr << fmt::format(
            "slurm: job {} stopped before its first step: not requeued (submit it again to resume)\n", job_id());
      } else {
        std::cout << requeue_commands(job_id()) << std::flush;
      }
      break;
  }
  return 0;
}

}  // namespace convoy
