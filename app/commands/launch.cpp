// SPDX-License-Identifier: Apache-2.0
//
// convoy launch: reads the training's config, finds hosts, becomes the leader of its folder and supervises.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "app/build/read_config.h"
#include "app/commands/commands.h"
#include "app/launch/member_service.h"
#include "app/launch/members.h"
#include "app/launch/process_tree.h"
#include "app/launch/remote_request.h"
#include "app/launch/slurm_hosts.h"
#include "app/launch/supervisor.h"
#include "io/files/lock_file.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

// The first of run.stop_signals that mpirun and srun pass on to ranks.
int launcher_stop_signal(const RunConfig& run) {
  for (const std::string& name : run.stop_signals) {
    const int signal = signal_number(name);
    if (signal == SIGUSR1 || signal == SIGUSR2) return signal;
  }
  fail_usage(
      "run.stop_signals: has neither SIGUSR2 nor SIGUSR1, which convoy launch needs: mpirun and srun pass on only "
      "those");
}

std::vector<int> caught_signals(const RunConfig& run) {
  std::vector<int> signals{SIGINT, SIGTERM, SIGHUP};
  for (const std::string& name : run.stop_signals) signals.push_back(signal_number(name));
  std::sort(signals.begin(), signals.end());
  signals.erase(std::unique(signals.begin(), signals.end()), signals.end());
  return signals;
}

enum class HostKind { kNamed, kSlurm, kMembers, kLocal };

HostKind host_kind(const LaunchArguments& arguments) {
  if (!arguments.hosts.empty() || !arguments.hosts_from.empty()) return HostKind::kNamed;
  if (slurm_hosts()) return HostKind::kSlurm;
  return arguments.job.empty() ? HostKind::kLocal : HostKind::kMembers;
}

std::unique_ptr<HostSource> host_source(const LaunchArguments& arguments, HostKind kind, const std::string& folder) {
  switch (kind) {
    case HostKind::kNamed: break;
    case HostKind::kSlurm: return slurm_hosts();
    case HostKind::kMembers: return member_hosts(folder);
    case HostKind::kLocal: return local_host();
  }
  return arguments.hosts.empty() ? hosts_from_command(arguments.hosts_from) : hosts_from_file(arguments.hosts);
}

std::string launch_folder(const LaunchArguments& arguments, const Config& config) {
  const fs::path folder = fs::absolute(arguments.job.empty() ? run_folder(config) + "/launch" : arguments.job);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    fail_usage("launch: cannot make the folder {}: {} (choose another with --job)", folder.string(), error.message());
  }
  return folder.lexically_normal().string();
}

Launcher make_launcher(const LaunchArguments& arguments, HostKind hosts, const std::string& folder) {
  Launcher launcher;
  launcher.arguments = split_command(arguments.launcher_args, "--launcher-args");
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  launcher.program = {program};
  for (const std::string& word : arguments.train_command_line) launcher.program.push_back(word);
  if (hosts != HostKind::kMembers) {
    launcher.kind = choose_launcher(arguments.launcher, hosts == HostKind::kSlurm);
    check_launcher(launcher);
    return launcher;
  }
  if (arguments.launcher == "srun") fail_usage("--launcher: members of a job are reached with mpirun, not with srun");
  if (program.find_first_of(" :") != std::string::npos) {
    fail_usage(
        "--job: mpirun cannot take {} in place of ssh (install convoy where the path has neither blank nor colon)",
        program);
  }
  // The program itself stands in for ssh, attached to what it starts.
  launcher.environment = {{"OMPI_MCA_plm", "rsh"},
                          {"OMPI_MCA_plm_rsh_agent", program + " launch-remote"},
                          {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},
                          {"OMPI_MCA_orte_leave_session_attached", "1"},
                          {kJobFolderVariable, folder}};
  check_launcher(launcher);
  return launcher;
}

// One launch of a job: leads it, or stands by until the leader has ended.
class JobLaunch {
 public:
  JobLaunch(const LaunchArguments& arguments, const Config& config)
      : arguments_(arguments),
        config_(config),
        counts_(config),
        kind_(host_kind(arguments)),
        folder_(launch_folder(arguments, config)),
        options_(supervisor_options()),
        on_lost_([this](const std::string&) { lost_ = true; }),
        leadership_(folder_ + "/leader.lock"),
        signals_(caught_signals(config.run)) {}

  int run() {
    if (arguments_.job.empty()) return lead_alone();
    const std::string host = this_process().host;
    member_ = join_job(folder_, host, std::max(1, arguments_.per_node), on_lost_);
    MemberService service(request_folder(folder_, host));
    return lead_or_stand_by(host, service);
  }

 private:
  [[nodiscard]] SupervisorOptions supervisor_options() const {
    SupervisorOptions options;
    options.nodes = {arguments_.min_nodes, arguments_.max_nodes};
    options.per_node = kind_ == HostKind::kMembers ? 0 : arguments_.per_node;  // each member says its own
    options.max_restarts = arguments_.max_restarts;
    options.stop_signal = launcher_stop_signal(config_.run);
    const auto& stops = config_.run.stop_signals;
    options.stops_on_interrupt = std::find(stops.begin(), stops.end(), "SIGINT") != stops.end();
    options.folder = folder_;
    options.launcher = make_launcher(arguments_, kind_, folder_);
    return options;
  }

  int lead_alone() {
    const auto lock = take_lock(leadership_, on_lost_);
    if (!lock) {
      fail_usage("launch: {} leads this run already (stop that launch first; its lock is {}/leader.lock)",
                 leadership_.holder().to_string(), folder_);
    }
    return lead(*lock);
  }

  int lead_or_stand_by(const std::string& host, MemberService& service) {
    const Journal journal("");
    std::set<std::string> leaders;  // that this launch has stood by for
    for (;;) {
      if (const auto lock = leadership_.poll(on_lost_)) {
        const JobState state = read_job_state(folder_ + "/state.json");
        if (state.status != JobStatus::kRunning && leaders.count(state.leader) > 0) {
          journal.write(fmt::format("{}: the job has ended with exit code {}", host, state.exit_code));
          return state.exit_code;
        }
        withdraw_all_requests(folder_);  // of a leader that has died
        return lead(*lock);
      }
      const LockOwner& leader = leadership_.holder();
      const std::string name = leader_name(leader.process.host, leader.token);
      if (!leader.token.empty() && leaders.insert(name).second) {
        journal.write(fmt::format("{} stands by; {} leads", host, leader.to_string()));
      }
      if (const auto signal = signals_.first()) return leave(*signal, service);
      if (lost_) fail("launch: the lock of {} in {} is lost, so it leaves the job", host, folder_);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // Its host is given up first, so that the leader can end in order what runs here.
  int leave(int signal, const MemberService& service) {
    const bool at_once = signal == SIGINT && !options_.stops_on_interrupt;
    member_.reset();
    const auto limit = std::chrono::duration<double>(config_.parallel.timeout + 60);
    const auto start = std::chrono::steady_clock::now();
    while (!at_once && service.busy() && !signals_.insisted() && std::chrono::steady_clock::now() - start < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return at_once ? 128 + SIGINT : static_cast<int>(ExitCode::kStopped);
  }

  int lead(const LockFile& lock) {
    options_.leader = leader_name(this_process().host, lock.token());
    HostWatch hosts(host_source(arguments_, kind_, folder_));
    return Supervisor(options_, config_, hosts, signals_, counts_, lost_).run();
  }

  static std::string leader_name(const std::string& host, const std::string& token) { return host + " " + token; }

  const LaunchArguments& arguments_;
  const Config& config_;
  const RankCounts counts_;
  const HostKind kind_;
  const std::string folder_;
  SupervisorOptions options_;
  std::atomic<bool> lost_ = false;
  const LockFile::OnLost on_lost_;
  LockAttempt leadership_;
  std::unique_ptr<LockFile> member_;  // of a job
  SignalInbox signals_;
};

}  // namespace

int launch_command(const LaunchArguments& arguments) {
  const Config config = read_config(arguments.train.config, arguments.train.overrides);
  adopt_orphans();
  return JobLaunch(arguments, config).run();
}

}  // namespace convoy
