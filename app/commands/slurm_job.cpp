// SPDX-License-Identifier: Apache-2.0
//
// convoy slurm-job: what the batch scripts in slurm/ need of the program. It is not in --help, since only those scripts
// call it. It may run in a container that has no Slurm, so it prints the shell commands that requeue the job, and the
// script runs them.
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "app/base/memory_limit.h"
#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "app/launch/failure.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/counted.h"
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

// A step of a job has a cgroup of its own, beside that of the script; that of the job counts for both (version 2).
std::int64_t job_oom_kills() {
  for (const Cgroup& group : memory_cgroups()) {
    const std::string name = group.path.substr(group.path.rfind('/') + 1);
    if (group.v2 && name.starts_with("job_")) return oom_kills(group);
  }
  return -1;
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

// "NAME-lr-0.1-precision-bf16", then an override a line. A checkpoint.dir gets a folder for each run.
std::string sweep_point(const SlurmJobArguments& arguments) {
  std::int64_t points = 1;
  for (const Sweep& sweep : arguments.sweeps) points *= static_cast<std::int64_t>(sweep.values.size());
  if (arguments.task < 0 || arguments.task >= points) {
    fail_usage("slurm-job: the sweep has {}, numbered from 0: there is no point {} (submit with --array=0-{})",
               counted(points, "point"), arguments.task, points - 1);
  }
  const Config config = read_config(arguments.train.config, arguments.train.overrides);
  std::string name = config.run.name, overrides;
  std::int64_t stride = points, rest = arguments.task;
  for (const Sweep& sweep : arguments.sweeps) {
    stride /= static_cast<std::int64_t>(sweep.values.size());
    const std::string& value = sweep.values[static_cast<std::size_t>(rest / stride)];
    rest %= stride;
    std::string plain;
    for (const char c : value) {
      if (c == '"' || c == '\'') continue;
      plain += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '+' || c == '-' ? c : '_';
    }
    name += fmt::format("-{}-{}", sweep.key.substr(sweep.key.rfind('.') + 1), plain);
    overrides += fmt::format("{}={}\n", sweep.key, value);
  }
  const bool swept = std::any_of(arguments.sweeps.begin(), arguments.sweeps.end(),
                                 [](const Sweep& sweep) { return sweep.key == "checkpoint.dir"; });
  if (!config.checkpoint.dir.empty() && !swept) {
    overrides += fmt::format("checkpoint.dir={}/{}\n", config.checkpoint.dir, name);
  }
  return name + "\n" + overrides;
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
    case kSweepPoint: std::cout << sweep_point(arguments) << std::flush; break;
    case kEnd:
      if (arguments.exit_code == 128 + SIGKILL) {
        std::cerr << fmt::format("slurm: a rank was killed by signal 9{}\n", describe_oom(job_oom_kills()));
      }
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
