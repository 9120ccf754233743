// SPDX-License-Identifier: Apache-2.0
//
// The part of the Supervisor that runs beside a generation: progress, signals of the user, changes of the hosts.
// Invariant: a generation is asked to stop once, and only ever pressed harder after that.
#include <algorithm>
#include <chrono>
#include <csignal>

#include "app/launch/supervisor.h"

namespace convoy {

namespace {

constexpr std::chrono::milliseconds kLookAtFiles{100};
constexpr std::chrono::milliseconds kLookAtHosts{250};
constexpr std::chrono::seconds kSettle{2};  // hosts come and go in groups
constexpr double kStopGrace = 60;           // seconds beyond parallel.timeout, to write a checkpoint

}  // namespace

GenerationEnd Supervisor::watch(Generation& generation) {
  Clock::time_point next_files = Clock::now(), next_hosts = next_files;
  for (;; tick()) {
    const auto end = generation.poll();
    if (end || Clock::now() >= next_files) {
      look_at_progress();
      next_files = Clock::now() + kLookAtFiles;
    }
    if (end) return *end;
    look_at_signals(generation);
    if (Clock::now() >= next_hosts) {
      look_at_hosts(generation);
      next_hosts = Clock::now() + kLookAtHosts;
    }
  }
}

void Supervisor::look_at_progress() {
  progress_.poll();
  if (progress_.start_step() && record().step_at_start != *progress_.start_step()) {
    record().step_at_start = *progress_.start_step();  // not the newest checkpoint's, as it seemed
    save();
  }
  if (!down_since_ || !progress_.first_step_at()) return;
  const double lost = std::chrono::duration<double>(*progress_.first_step_at() - *down_since_).count();
  down_since_.reset();
  record().seconds_lost = lost;
  save();
  journal_.write(fmt::format("generation {} trains: resumed from step {}, {:.1f} s after the last step before",
                             record().number, record().step_at_start, lost));
}

void Supervisor::look_at_signals(Generation& generation) {
  const auto signal = signals_.first();
  if (!signal) return;
  if (*signal == SIGINT && !options_.stops_on_interrupt) {
    if (!interrupted_) generation.terminate(SIGINT);
    interrupted_ = true;
    return;
  }
  if (signals_.insisted() && !insisted_) {
    insisted_ = true;
    interrupted_ = *signal == SIGINT;
    journal_.write("asked to end a second time: ends all ranks at once");
    generation.terminate(SIGTERM);
    return;
  }
  if (user_stop_) return;
  user_stop_ = true;
  const std::string name = signal_name(*signal);
  if (!progress_.start_step()) {  // the launcher and the ranks may not listen yet, and there is nothing to lose
    journal_.write(fmt::format("{}: ends generation {}, which has not begun to train", name, record().number));
    ends_at_start_ = true;
    generation.terminate(SIGTERM);
    return;
  }
  journal_.write(fmt::format("{}: stops generation {} at a step boundary", name, record().number));
  if (!generation.stopping()) {
    generation.stop(options_.stop_signal, false, std::chrono::duration<double>(timeout_ + kStopGrace));
  }
}

void Supervisor::look_at_hosts(Generation& generation) {
  if (generation.stopping()) return;
  const HostList usable = usable_hosts();
  const auto chosen = choose_hosts(usable, generation.hosts(), options_.nodes, problem_);
  HostList wanted;  // none: too few are left, so it stops and waits
  if (chosen) {
    wanted = *chosen;
  } else if (static_cast<int>(usable.size()) >= options_.nodes.min) {
    wanted = generation.hosts();  // nothing else would suit the config
  }
  if (wanted == generation.hosts()) {
    other_hosts_.reset();
    return;
  }
  if (!other_hosts_ || *other_hosts_ != wanted) {
    other_hosts_ = wanted;
    other_since_ = Clock::now();
    return;
  }
  if (Clock::now() - other_since_ < kSettle) return;
  const std::string now = fmt::format("the hosts are now {}", describe_hosts(wanted));
  if (progress_.start_step()) {
    journal_.write(fmt::format("stops generation {} at a step boundary: {}", record().number, now));
    generation.stop(options_.stop_signal, true, std::chrono::duration<double>(timeout_ + kStopGrace));
    return;
  }
  // The trainer has not begun, so it does not listen yet, and has nothing to lose. More hosts can wait for it; but with
  // a host gone it may never begin.
  const bool host_gone = std::any_of(generation.hosts().begin(), generation.hosts().end(), [&](const Host& used) {
    return std::none_of(usable.begin(), usable.end(), [&](const Host& host) { return host.name == used.name; });
  });
  if (!host_gone) return;
  journal_.write(fmt::format("ends generation {}, which has not begun to train: {}", record().number, now));
  generation.terminate(SIGTERM, true);
}

}  // namespace convoy
