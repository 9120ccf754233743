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
#include <map>
#include <string>
#include <vector>

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

// The last part of a key; all of it where another key of the sweep ends in the same.
std::string label_of_key(const std::vector<Sweep>& sweeps, const std::string& key) {
  const auto last = [](const std::string& of) { return of.substr(of.rfind('.') + 1); };
  const auto same =
      std::count_if(sweeps.begin(), sweeps.end(), [&](const Sweep& sweep) { return last(sweep.key) == last(key); });
  return same > 1 ? key : last(key);
}

// The value as a part of a file's name.
std::string label_of_value(const std::string& value) {
  std::string label;
  for (const char c : value) {
    if (c == '"' || c == '\'') continue;
    label += std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '+' || c == '-' ? c : '_';
  }
  return label;
}

// Two points with one name would be two jobs in one folder.
void check_labels(const Sweep& sweep) {
  std::map<std::string, std::string> values;  // by label
  for (const std::string& value : sweep.values) {
    const auto [other, added] = values.emplace(label_of_value(value), value);
    if (added) continue;
    fail_usage(
        "slurm-job: {}: the runs of {} and {} would have one name, with \"{}\" in it (sweep one of them in a job of "
        "its own, with another run.name)",
        sweep.key, other->second, value, other->first);
  }
}

// "NAME-lr-0.1-precision-bf16", then an override a line. A checkpoint.dir gets a folder for each run.
std::string sweep_point(const SlurmJobArguments& arguments) {
  for (const Sweep& sweep : arguments.sweeps) check_labels(sweep);
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
    name += fmt::format("-{}-{}", label_of_key(arguments.sweeps, sweep.key), label_of_value(value));
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
