// SPDX-License-Identifier: Apache-2.0
//
// One start of all ranks: mpirun or srun as a child, and the ways to end it, from asking to killing. Invariant:
// destroying it leaves no process of it on this machine, and no files of MPI; those elsewhere end with their launcher,
// or with the step of an srun that was killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "app/launch/child_process.h"
#include "app/launch/failure.h"
#include "app/launch/host_list.h"
#include "app/launch/launcher.h"
#include "app/launch/mpi_leftovers.h"
#include "app/launch/slurm_steps.h"

namespace convoy {

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  /// error_file: where a rank leaves what it reports (app/base/error_report.h); removed first. Beside it `mpi_files`
  /// records what MPI would leave.
  Generation(const Launcher& launcher, HostList hosts, std::string error_file);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  [[nodiscard]] const HostList& hosts() const { return hosts_; }
  [[nodiscard]] bool stopping() const { return deadline_.has_value(); }

  /// Asks for a checkpoint and exit 75 with the signal that the training listens to; after `limit` it is killed.
  void stop(int signal, bool resize, std::chrono::duration<double> limit);
  /// Tells the launcher to end all ranks at once; after a few seconds they are killed.
  void terminate(int signal, bool resize = false);
  /// Kills what has passed its deadline; returns how it ended, once it has.
  std::optional<GenerationEnd> poll();

 private:
  void set_deadline(std::chrono::duration<double> limit);
  [[nodiscard]] std::int64_t oom_kills_since_start() const;

  Launcher launcher_;
  HostList hosts_;
  std::string error_file_;
  std::int64_t oom_kills_before_;
  MpiLeftovers leftovers_;
  std::unique_ptr<ChildProcess> child_;
  std::optional<SlurmStepEnd> step_end_;  // srun was killed: its ranks have yet to end
  std::optional<Clock::time_point> deadline_;
  bool resize_ = false;
  int stop_signal_ = 0;
};

}  // namespace convoy
