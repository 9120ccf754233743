// SPDX-License-Identifier: Apache-2.0
#include "app/launch/generation.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/base/error_report.h"
#include "app/base/memory_limit.h"
#include "app/launch/host_health.h"
#include "app/launch/process_tree.h"

namespace convoy {

namespace {

// Open MPI's mpirun gives ranks at most two seconds between SIGTERM and SIGKILL.
constexpr std::chrono::seconds kTerminationLimit{5};

// The first report in the file: its line, and the host at fault if it names one.
void read_report(const std::string& path, GenerationEnd& end) {
  std::ifstream file(path);
  std::getline(file, end.error);
  const std::string_view mark = kFaultyHost;
  if (!end.error.starts_with(mark)) return;
  end.host = end.error.substr(mark.size());
  std::getline(file, end.error);
}

}  // namespace

Generation::Generation(const Launcher& launcher, HostList hosts, std::string error_file)
    : launcher_(launcher),
      hosts_(std::move(hosts)),
      error_file_(std::move(error_file)),
      oom_kills_before_(oom_kills()),
      leftovers_((std::filesystem::path(error_file_).parent_path() / "mpi_files").string()) {
  std::error_code ignored;
  std::filesystem::remove(error_file_, ignored);
  ChildProcess::Options options;
  if (launcher_.kind == LauncherKind::kMpirun) options.environment = launcher_.mpirun.environment();
  options.environment.emplace_back(kErrorFileVariable, error_file_);
  child_ = std::make_unique<ChildProcess>(launcher.command(hosts_), options);
}

Generation::~Generation() {
  const bool srun_is_killed = launcher_.kind == LauncherKind::kSrun && !child_->poll();
  child_.reset();
  if (srun_is_killed || step_end_) SlurmStepEnd::cancel_all();
  leftovers_.look_at_orphans();
  kill_orphans();
  leftovers_.sweep();
}

void Generation::set_deadline(std::chrono::duration<double> limit) {
  const auto at = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  if (!deadline_ || at < *deadline_) deadline_ = at;
}

void Generation::stop(int signal, bool resize, std::chrono::duration<double> limit) {
  resize_ = resize;
  stop_signal_ = signal;
  set_deadline(limit);
  child_->signal(signal);
}

void Generation::terminate(int signal, bool resize) {
  resize_ = resize_ || resize;
  set_deadline(kTerminationLimit);
  child_->signal(signal);
  child_->signal(SIGCONT);
}

// The counter of this host's cgroup says nothing of other hosts.
std::int64_t Generation::oom_kills_since_start() const {
  const std::int64_t now = oom_kills();
  if (now >= 0 && oom_kills_before_ >= 0 && now > oom_kills_before_) return now - oom_kills_before_;
  const bool all_here = std::all_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return is_this_host(h.name); });
  return now >= 0 && oom_kills_before_ >= 0 && all_here ? 0 : -1;
}

std::optional<GenerationEnd> Generation::poll() {
  const auto status = child_->poll();
  if (!status) {
    leftovers_.look(child_->pid());
    if (deadline_ && Clock::now() > *deadline_) child_->kill_all();
    return std::nullopt;
  }
  if (launcher_.kind == LauncherKind::kSrun && status->signal != 0 && !step_end_) step_end_.emplace();
  if (step_end_ && !step_end_->done()) return std::nullopt;
  step_end_.reset();
  leftovers_.look_at_orphans();
  kill_orphans();  // ranks of a launcher that was killed
  leftovers_.sweep();
  GenerationEnd end;
  read_report(error_file_, end);
  end.status = launcher_.rank_status(*status, !end.error.empty());
  end.resize = resize_;
  end.stop_signal = stop_signal_;
  end.oom_kills = oom_kills_since_start();
  return end;
}

}  // namespace convoy
