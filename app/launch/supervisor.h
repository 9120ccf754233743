// SPDX-License-Identifier: Apache-2.0
//
// Supervises one training run: waits for hosts, starts generations, restarts after failures, resizes when hosts come or
// go, and records its state. The caller holds the leader's lock. Invariant: a generation starts only after the previous
// one has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "app/config/config.h"
#include "app/launch/failure.h"
#include "app/launch/generation.h"
#include "app/launch/host_health.h"
#include "app/launch/host_watch.h"
#include "app/launch/job_state.h"
#include "app/launch/journal.h"
#include "app/launch/launcher.h"
#include "app/launch/rank_counts.h"
#include "app/launch/run_status.h"
#include "app/launch/signal_inbox.h"

namespace convoy {

struct SupervisorOptions {
  NodeRange nodes;
  int per_node = 0;  ///< ranks on each host; 0: its slots
  int max_restarts = 3;
  int stop_signal = 0;              ///< that the launcher passes on and the training listens to
  bool stops_on_interrupt = false;  ///< whether SIGINT is one of the training's stop signals
  std::string folder;               ///< state, log, errors
  std::string leader;               ///< for the state file
  Launcher launcher;
};

class Supervisor {
 public:
  /// All references outlive it. lost: becomes true when the leader's lock is lost.
  Supervisor(SupervisorOptions options, const Config& config, HostWatch& hosts, SignalInbox& signals,
             const RankCounts& counts, const std::atomic<bool>& lost);

  /// The exit code of the launch.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Ended {
    int code;
    JobStatus status;
    std::string words;
  };

  void take_up_state();
  int supervise();
  void tick();
  [[nodiscard]] HostList usable_hosts();
  std::optional<Ended> wait_for_hosts(HostList& chosen);
  std::optional<Ended> wait_until(Clock::time_point time);
  [[nodiscard]] std::optional<Ended> asked_to_end();
  void begin_generation(Generation& generation);
  GenerationEnd watch(Generation& generation);
  void look_at_progress();
  void look_at_signals(Generation& generation);
  void look_at_hosts(Generation& generation);
  std::optional<Ended> end_generation(const GenerationEnd& end, const HostList& hosts);
  std::optional<Ended> after_failure(const HostList& hosts);
  bool go_back_before(std::int64_t step);
  int finish(const Ended& ended);
  void save();
  [[nodiscard]] GenerationRecord& record() { return state_.generations.back(); }

  const SupervisorOptions options_;
  const double timeout_;
  const std::string checkpoints_, copies_;  // folders; copies: empty without checkpoint.copy_to
  HostWatch& watch_;
  SignalInbox& signals_;
  const std::atomic<bool>& lost_;
  const RankProblem problem_;
  Journal journal_;
  HostHealth health_;
  RunStatus progress_;
  JobState state_;
  RestartPolicy policy_;
  HostList last_hosts_;
  std::string reason_ = "start";
  std::optional<Clock::time_point> down_since_;  // the last step that was seen, while none follows
  std::optional<HostList> other_hosts_;          // that are called for instead of those in use
  Clock::time_point other_since_;
  bool unsaved_ = false;  // the last attempt to write the state failed
  bool user_stop_ = false, insisted_ = false, interrupted_ = false;
  bool ends_at_start_ = false;  // the user stops a generation that has not begun to train, as far as was seen
};

}  // namespace convoy
