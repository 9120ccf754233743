// SPDX-License-Identifier: Apache-2.0
//
// The course of a job: hosts, generations, what follows from their ends. supervisor_watch.cpp is what happens while a
// generation runs.
#include "app/launch/supervisor.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kTick{20};
constexpr std::chrono::seconds kProbePatience{2};  // for slow hosts, when there are others to start with
constexpr std::chrono::seconds kReminder{60};

std::string format_seconds(double seconds) { return fmt::format("{:.1f} s", seconds); }

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, const Config& config, HostWatch& hosts, SignalInbox& signals,
                       const RankCounts& counts, const std::atomic<bool>& lost)
    : options_(std::move(options)),
      timeout_(config.parallel.timeout),
      checkpoints_(checkpoint_folder(config)),
      copies_(copy_folder(config)),
      watch_(hosts),
      signals_(signals),
      lost_(lost),
      problem_([&counts](int ranks) { return counts.problem(ranks); }),
      journal_(options_.folder + "/launch.log"),
      health_([this](const std::string& host) { return options_.launcher.probe(host); }, journal_),
      progress_(run_folder(config), checkpoint_folder(config)),
      policy_(options_.max_restarts, 0) {}

int Supervisor::run() {
  take_up_state();
  try {
    return supervise();
  } catch (const Error& error) {
    // A standby launch would find the same; a leader that has lost its lock reports nothing more.
    if (!lost_) {
      state_.status = JobStatus::kFailed;
      state_.exit_code = static_cast<int>(error.code());
      save();
    }
    throw;
  }
}

int Supervisor::supervise() {
  for (;;) {
    HostList chosen;
    if (const auto ended = wait_for_hosts(chosen)) return finish(*ended);
    Generation generation(options_.launcher, chosen, options_.folder + "/error.txt");
    begin_generation(generation);
    const GenerationEnd end = watch(generation);
    if (const auto ended = end_generation(end, chosen)) return finish(*ended);
  }
}

// A launch that was killed left its last generation open; one that ended in order begins a new count.
void Supervisor::take_up_state() {
  state_ = read_job_state(options_.folder + "/state.json");
  if (state_.status != JobStatus::kRunning) {
    state_.restarts = 0;
    state_.went_back_from = -1;
  }
  policy_ = RestartPolicy(options_.max_restarts, state_.restarts);
  policy_.remember_going_back(state_.went_back_from);
  if (state_.status == JobStatus::kRunning && !state_.generations.empty()) {
    GenerationRecord& last = record();
    if (last.end.empty()) {
      last.end = utc_time();
      last.exit = "its launch ended";
      // It may have begun, and written checkpoints, since the state was saved.
      progress_.take_up(last.starts_before);
      if (progress_.start_step()) last.step_at_start = *progress_.start_step();
      last.step_at_end = progress_.newest_checkpoint();
      const auto idle = std::chrono::duration<double>(progress_.seconds_since_last_line());
      down_since_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(idle);
    }
    if (last.program_error) {
      policy_.remember({true, last.step_at_start, last.step_at_end > last.step_at_start, false});
    }
    reason_ = "the launch before has ended";
    journal_.write(fmt::format("resumes after generation {}, {} of {} restarts used", state_.generation,
                               state_.restarts, options_.max_restarts));
  }
  state_.status = JobStatus::kRunning;
  state_.leader = options_.leader;
  save();
}

void Supervisor::tick() {
  std::this_thread::sleep_for(kTick);
  for (const std::string& complaint : watch_.take_complaints()) {
    journal_.write(fmt::format("{}; the last valid list stays in use", complaint));
  }
  if (lost_)
    fail("launch: its lock in {} is lost (removed, or taken over), so it ends with its ranks", options_.folder);
}

HostList Supervisor::usable_hosts() {
  HostList listed = watch_.hosts();
  for (Host& host : listed) {
    if (options_.per_node > 0) host.slots = options_.per_node;
  }
  return health_.usable(listed);
}

std::optional<Supervisor::Ended> Supervisor::wait_for_hosts(HostList& chosen) {
  auto start = Clock::now();  // of the last probe that had to wait for its turn
  std::optional<Clock::time_point> reminded;
  for (;; tick()) {
    if (auto ended = asked_to_end()) return ended;
    const HostList usable = usable_hosts();
    const auto wanted = choose_hosts(usable, last_hosts_, options_.nodes, problem_);
    const bool trying = health_.busy(watch_.hosts());
    if (health_.queueing(watch_.hosts())) start = Clock::now();
    if (trying && static_cast<int>(usable.size()) < options_.nodes.max &&
        (!wanted || Clock::now() - start < kProbePatience)) {
      continue;
    }
    if (wanted) {
      chosen = *wanted;
      return std::nullopt;
    }
    if (static_cast<int>(usable.size()) >= options_.nodes.min) {
      check_nodes(usable, options_.nodes, options_.per_node, problem_);
    }
    if (const std::string reason = health_.hopeless(watch_.hosts()); !reason.empty() && state_.generation == 0) {
      return Ended{static_cast<int>(ExitCode::kUsage), JobStatus::kFailed,
                   fmt::format("gives up: none of the hosts (from {}) has ever worked; {}", watch_.name(), reason)};
    }
    if (!reminded || Clock::now() - *reminded > kReminder) {
      const bool enough = static_cast<int>(usable.size()) >= options_.nodes.min;
      journal_.write(fmt::format(
          "waits for hosts: {} can be used ({}), {} (from {})", usable.size(), describe_hosts(usable),
          enough ? "and no number of them suits the config" : fmt::format("at least {} are needed", options_.nodes.min),
          watch_.name()));
      reminded = Clock::now();
    }
  }
}

std::optional<Supervisor::Ended> Supervisor::wait_until(Clock::time_point time) {
  while (Clock::now() < time) {
    if (auto ended = asked_to_end()) return ended;
    tick();
  }
  return std::nullopt;
}

std::optional<Supervisor::Ended> Supervisor::asked_to_end() {
  const auto signal = signals_.first();
  if (!signal) return std::nullopt;
  const std::string words = "ended by " + signal_name(*signal);
  if (*signal == SIGINT && !options_.stops_on_interrupt) return Ended{128 + SIGINT, JobStatus::kStopped, words};
  return Ended{static_cast<int>(ExitCode::kStopped), JobStatus::kStopped,
               words + "; run the same command again to resume"};
}

void Supervisor::begin_generation(Generation& generation) {
  progress_.begin();
  other_hosts_.reset();
  last_hosts_ = generation.hosts();
  ++state_.generation;
  GenerationRecord next;
  next.number = state_.generation;
  next.ranks = count_slots(generation.hosts());
  next.hosts = describe_hosts(generation.hosts());
  next.reason = reason_;
  next.start = utc_time();
  next.step_at_start = progress_.newest_checkpoint();
  next.starts_before = progress_.starts_before();
  state_.generations.push_back(next);
  save();
  journal_.write(fmt::format("generation {}: {} {} on {} ({})", next.number, next.ranks,
                             next.ranks == 1 ? "rank" : "ranks", next.hosts, reason_));
}

std::optional<Supervisor::Ended> Supervisor::end_generation(const GenerationEnd& end, const HostList& hosts) {
  progress_.poll();
  EndKind kind = classify(end);
  // Hydra may lose the exit codes of ranks (and end with 0) after a signal.
  if (kind == EndKind::kDone && progress_.stopped_early()) kind = EndKind::kStopped;
  GenerationRecord& last = record();
  last.end = utc_time();
  last.exit = describe_end(end, options_.launcher.name());
  if (progress_.start_step()) last.step_at_start = *progress_.start_step();
  last.step_at_end = progress_.newest_checkpoint();
  last.program_error = kind == EndKind::kProgramError;
  if (progress_.last_seen_at()) {
    down_since_ = progress_.last_seen_at();
  } else if (!down_since_) {
    down_since_ = Clock::now();
  }
  save();
  const std::string number = fmt::format("generation {} ", last.number);
  const auto ended = [&](int code, JobStatus status, const std::string& words) {
    return Ended{code, status, number + words};
  };
  if (kind == EndKind::kDone) return ended(0, JobStatus::kDone, "ended in order: done");
  if (kind == EndKind::kUsage)
    return ended(2, JobStatus::kFailed, "ended with a usage error; a restart would find the same");
  if (interrupted_) return ended(128 + SIGINT, JobStatus::kStopped, "was interrupted");
  const bool asked = signals_.first().has_value();
  if (kind == EndKind::kStopped && (asked || !end.resize)) {
    return ended(static_cast<int>(ExitCode::kStopped), JobStatus::kStopped,
                 "stopped after a checkpoint; run the same command again to resume");
  }
  if (asked && kind == EndKind::kKilled && !insisted_ && ends_at_start_) {
    return ended(static_cast<int>(ExitCode::kStopped), JobStatus::kStopped,
                 "was ended before it began to train; run the same command again");
  }
  if (asked) {
    return ended(1, JobStatus::kFailed,
                 fmt::format("was to stop and ended otherwise ({}); the newest checkpoint is of step {}", last.exit,
                             last.step_at_end));
  }
  if (end.resize) {
    journal_.write(number + (kind == EndKind::kStopped ? "stopped for other hosts" : "was killed for other hosts"));
    reason_ = "the hosts have changed";
    return std::nullopt;
  }
  if (kind == EndKind::kSystemError) health_.blame(end.host, watch_.hosts(), progress_.first_step_at().has_value());
  return after_failure(hosts);
}

std::optional<Supervisor::Ended> Supervisor::after_failure(const HostList& hosts) {
  const GenerationRecord& last = record();
  const Failure failure{last.program_error, last.step_at_start, last.step_at_end > last.step_at_start,
                        progress_.first_step_at().has_value(), progress_.start_step().has_value()};
  const bool older = policy_.older_may_help(failure) && go_back_before(failure.start_step);
  const RestartPolicy::Verdict verdict = policy_.after(failure, older);
  state_.restarts = policy_.restarts();
  state_.went_back_from = policy_.went_back_from();
  if (!verdict.give_up.empty()) {
    const std::string before = state_.went_back_from > last.step_at_start
                                   ? fmt::format("; that of step {} was set aside before", state_.went_back_from)
                                   : "";
    return Ended{1, JobStatus::kFailed,
                 fmt::format("launch gives up after generation {} ({}): {}{}; the newest checkpoint is of step {}",
                             last.number, last.exit, verdict.give_up, before, last.step_at_end)};
  }
  save();
  journal_.write(fmt::format("generation {} failed: {}; restart {} of {}{}", last.number, last.exit, state_.restarts,
                             options_.max_restarts,
                             verdict.delay_seconds == 0 ? "" : fmt::format(" in {} s", verdict.delay_seconds)));
  reason_ = last.exit;
  if (hosts.size() > 1 || !is_this_host(hosts.front().name)) health_.doubt();
  return wait_until(Clock::now() + std::chrono::seconds(verdict.delay_seconds));
}

// Sets aside the checkpoint of `step`, from which two generations have failed, so that the next one resumes from the
// valid one before it. Does nothing, and returns false, if there is none, or if the run resumed from another file.
bool Supervisor::go_back_before(std::int64_t step) {
  try {
    auto files = list_checkpoints(checkpoints_);
    if (!copies_.empty()) {
      const auto copies = list_checkpoints(copies_);
      files.insert(files.end(), copies.begin(), copies.end());
      std::stable_sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    }
    const auto is_valid = [&](const CheckpointFile& file) {
      return file.step < step && checkpoint_problem(file.path).empty();
    };
    const auto failed = [&](const CheckpointFile& file) { return file.step == step; };
    const auto older = std::find_if(files.rbegin(), files.rend(), is_valid);
    if (older == files.rend() || std::none_of(files.begin(), files.end(), failed)) return false;
    std::vector<std::string> names = set_aside_failed_checkpoints(checkpoints_, step);
    if (!copies_.empty()) {
      const auto copies = set_aside_failed_checkpoints(copies_, step);
      names.insert(names.end(), copies.begin(), copies.end());
    }
    journal_.write(
        fmt::format("two generations in a row failed after the checkpoint of step {}: it is now {}, and the "
                    "next generation resumes from step {}",
                    step, fmt::join(names, ", "), older->step));
    return true;
  } catch (const Error& error) {
    journal_.write(fmt::format("no older checkpoint is tried: {}", error.what()));
    return false;
  }
}

int Supervisor::finish(const Ended& ended) {
  state_.status = ended.status;
  state_.exit_code = ended.code;
  save();
  double lost = 0;
  for (const GenerationRecord& generation : state_.generations) lost += generation.seconds_lost;
  if (ended.code == 1) {
    journal_.error(ended.words);
  } else {
    journal_.write(fmt::format("{} ({} {}, {} restarts, {} lost)", ended.words, state_.generation,
                               state_.generation == 1 ? "generation" : "generations", state_.restarts,
                               format_seconds(lost)));
  }
  return ended.code;
}

// A folder that cannot be written (a full disk) costs the record, not the run.
void Supervisor::save() {
  try {
    write_job_state(options_.folder + "/state.json", state_);
    unsaved_ = false;
  } catch (const Error& error) {
    if (!unsaved_) journal_.write(fmt::format("the state is not kept: {}", error.what()));
    unsaved_ = true;
  }
}

}  // namespace convoy
