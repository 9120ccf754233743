// SPDX-License-Identifier: Apache-2.0
#include "app/launch/generation.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "app/base/error_report.h"
#include "app/base/memory_limit.h"
#include "app/launch/host_health.h"
#include "app/launch/process_tree.h"

namespace convoy {

namespace {

// Open MPI's mpirun gives ranks at most two seconds between SIGTERM and SIGKILL.
constexpr std::chrono::seconds kTerminationLimit{5};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Generation::Generation(const Launcher& launcher, HostList hosts, std::string error_file)
    : launcher_(launcher),
      hosts_(std::move(hosts)),
      error_file_(std::move(error_file)),
      oom_kills_before_(oom_kills()) {
  std::error_code ignored;
  std::filesystem::remove(error_file_, ignored);
  ChildProcess::Options options;
  options.environment = {{kErrorFileVariable, error_file_}};
  child_ = std::make_unique<ChildProcess>(launcher.command(hosts_), options);
}

Generation::~Generation() {
  child_.reset();
  kill_orphans();
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
    if (deadline_ && Clock::now() > *deadline_) child_->kill_all();
    return std::nullopt;
  }
  kill_orphans();  // ranks of a launcher that was killed
  const std::string error = first_line(error_file_);
  return GenerationEnd{launcher_.rank_status(*status, !error.empty()), error, resize_, stop_signal_,
                       oom_kills_since_start()};
}

}  // namespace convoy
