// SPDX-License-Identifier: Apache-2.0
//
// convoy launch: reads the config of the training, finds hosts, locks the launch folder of the run and supervises.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "app/launch/process_tree.h"
#include "app/launch/slurm_hosts.h"
#include "app/launch/supervisor.h"
#include "io/files/create_folders.h"
#include "io/files/lock_file.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"
#include "parallel/world/world.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

// The first of run.stop_signals that the launcher passes on to ranks.
int launcher_stop_signal(const RunOptions& run, const Launcher& launcher) {
  for (const std::string& name : run.stop_signals) {
    const int signal = signal_number(name);
    if (launcher.passes_on(signal)) return signal;
  }
  fail_usage("run.stop_signals: has none of those that {} passes on to ranks; convoy launch needs one (SIGUSR1)",
             launcher.name());
}

std::vector<int> caught_signals(const RunOptions& run) {
  std::vector<int> signals{SIGINT, SIGTERM, SIGHUP};
  for (const std::string& name : run.stop_signals) signals.push_back(signal_number(name));
  std::sort(signals.begin(), signals.end());
  signals.erase(std::unique(signals.begin(), signals.end()), signals.end());
  return signals;
}

enum class HostKind { kNamed, kSlurm, kLocal };

HostKind host_kind(const LaunchArguments& arguments) {
  if (!arguments.hosts.empty() || !arguments.hosts_from.empty()) return HostKind::kNamed;
  return slurm_hosts() ? HostKind::kSlurm : HostKind::kLocal;
}

std::unique_ptr<HostSource> host_source(const LaunchArguments& arguments, HostKind kind) {
  if (kind == HostKind::kSlurm) return slurm_hosts();
  if (kind == HostKind::kLocal) return local_host();
  return arguments.hosts.empty() ? hosts_from_command(arguments.hosts_from) : hosts_from_file(arguments.hosts);
}

std::string launch_folder(const Config& config) {
  const fs::path folder = fs::absolute(run_folder(config) + "/launch");
  if (const std::error_code error = create_folders(folder)) {
    fail_system(error.value(), "launch: cannot make the folder {}: {} (choose another with run.dir)", folder.string(),
                error.message());
  }
  return folder.lexically_normal().string();
}

Launcher make_launcher(const LaunchArguments& arguments, HostKind hosts) {
  Launcher launcher = choose_launcher(arguments.launcher, hosts == HostKind::kSlurm, World::mpi_library());
  launcher.arguments = split_command(arguments.launcher_args, "--launcher-args");
  launcher.program = {fs::read_symlink("/proc/self/exe").string()};
  for (const std::string& word : arguments.train_command_line) launcher.program.push_back(word);
  return launcher;
}

SupervisorOptions supervisor_options(const LaunchArguments& arguments, const RunOptions& run, std::string folder,
                                     Launcher launcher) {
  SupervisorOptions options;
  options.nodes = {arguments.min_nodes, arguments.max_nodes};
  options.per_node = arguments.per_node;
  options.max_restarts = arguments.max_restarts;
  options.stop_signal = launcher_stop_signal(run, launcher);
  options.stops_on_interrupt =
      std::find(run.stop_signals.begin(), run.stop_signals.end(), "SIGINT") != run.stop_signals.end();
  options.folder = std::move(folder);
  options.launcher = std::move(launcher);
  return options;
}

// Waits for a lock that may be stale: not at all while its owner certainly runs, else at most 17 s; null then.
std::unique_ptr<LockFile> take_lock(LockAttempt& attempt, const LockFile::OnLost& on_lost) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (auto lock = attempt.poll(on_lost)) return lock;
    const bool runs = liveness(attempt.holder().process) == Liveness::kRuns;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (runs || waited > LockAttempt::kStaleSeconds + std::chrono::seconds(2)) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

int launch_command(const LaunchArguments& arguments) {
  const Config config = read_config(arguments.train.config, arguments.train.overrides);
  adopt_orphans();
  const RankCounts counts(config);
  const HostKind kind = host_kind(arguments);
  const std::string folder = launch_folder(config);
  SupervisorOptions options = supervisor_options(arguments, config.run, folder, make_launcher(arguments, kind));
  SignalInbox signals(caught_signals(config.run));

  std::atomic<bool> lost = false;
  LockAttempt leadership(folder + "/leader.lock");
  const auto lock = take_lock(leadership, [&lost](const std::string&) { lost = true; });
  if (!lock) {
    fail_busy("launch: {} leads this run already (stop that launch first; its lock is {}/leader.lock)",
              leadership.holder().to_string(), folder);
  }
  options.leader = this_process().host + " " + lock->token();
  HostWatch hosts(host_source(arguments, kind));
  return Supervisor(options, config, hosts, signals, counts, lost).run();
}

}  // namespace convoy
