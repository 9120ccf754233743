// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/simulator.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr double kNotYet = -1;  // all times are at least 0

double value_or_zero(const std::vector<double>& values, int stage) {
  return values.empty() ? 0 : values.at(static_cast<std::size_t>(stage));
}

// Takes the actions of all stages as soon as what they need is there. All messages of a link in one direction are made
// by one rank, one after the other, so that each can be timed as soon as its producer is.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const CostModel& costs)
      : schedule_(schedule),
        costs_(costs),
        times_(size(schedule.virtual_stages()) * size(schedule.microbatches)),
        link_free_(size(schedule.stages) * size(schedule.stages), 0),
        position_(size(schedule.stages), 0),
        now_(size(schedule.stages), 0),
        last_backward_(size(schedule.virtual_stages())) {
    check_sizes();
    timeline_.stages.resize(size(schedule.stages));
  }

  Timeline run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.stages; ++stage) moved = advance(stage) || moved;
    }
    check_finished();
    for (int stage = 0; stage < schedule_.stages; ++stage) sum_up(stage);
    double first = 0;
    bool any = false;
    for (const std::vector<TimedAction>& timed : timeline_.stages) {
      if (timed.empty()) continue;
      first = any ? std::min(first, timed.front().start) : timed.front().start;
      any = true;
      timeline_.seconds = std::max(timeline_.seconds, timed.back().end);
    }
    timeline_.seconds -= first;
    return std::move(timeline_);
  }

 private:
  // When what one microbatch needs or makes on one virtual stage is there.
  struct Times {
    double input = kNotYet, gradient = kNotYet;                          // received
    double forward = kNotYet, backward_input = kNotYet, done = kNotYet;  // computed
  };

  struct Interval {
    double start = 0, end = 0;
  };

  struct Need {
    double time;
    ActionKind kind;  // of the action that makes it
    int virtual_stage;
  };

  static std::size_t size(int value) { return static_cast<std::size_t>(value); }

  void check_sizes() const {
    const auto check = [](std::string_view what, std::size_t got, int wanted, bool may_be_empty) {
      if (got == size(wanted) || (may_be_empty && got == 0)) return;
      fail("cost model: {} numbers for {}, it needs {}", got, what, wanted);
    };
    check("chunks", costs_.chunks.size(), schedule_.virtual_stages(), false);
    if (costs_.links.size() + 1 != size(schedule_.stages)) check("links", costs_.links.size(), schedule_.stages, true);
    check("buckets", costs_.buckets.size(), schedule_.stages, true);
    for (const std::vector<BucketCost>& buckets : costs_.buckets) {
      for (const BucketCost& bucket : buckets) {
        if (bucket.chunk < 0 || bucket.chunk >= schedule_.chunks)
          fail("cost model: a bucket of chunk {}", bucket.chunk);
      }
    }
    check("optimizer", costs_.optimizer.size(), schedule_.stages, true);
    check("the lists of actions", schedule_.actions.size(), schedule_.stages, false);
    for (const std::vector<Action>& list : schedule_.actions) {
      for (const Action& action : list) {
        if (!is_compute(action.kind)) continue;
        const bool known = action.microbatch >= 0 && action.microbatch < schedule_.microbatches && action.chunk >= 0 &&
                           action.chunk < schedule_.chunks;
        if (!known) fail("schedule '{}' cannot be run: there is no {}", schedule_.name, action_name(action));
      }
    }
  }

  Times& times(int virtual_stage, int microbatch) {
    return times_[size(virtual_stage) * size(schedule_.microbatches) + size(microbatch)];
  }

  const ChunkCost& cost(int virtual_stage) const { return costs_.chunks[size(virtual_stage)]; }

  // What the action needs, the first that is missing or else the last to come.
  std::optional<Need> need(const Action& action, int v) {
    if (!is_compute(action.kind)) return std::nullopt;  // it may be of no microbatch
    const Times& here = times(v, action.microbatch);
    const auto last = schedule_.virtual_stages() - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        if (v == 0) return std::nullopt;
        return Need{here.input, ActionKind::kForward, v - 1};
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (here.forward == kNotYet || v == last) return Need{here.forward, ActionKind::kForward, v};
        return Need{here.gradient, action.kind, v + 1};
      case ActionKind::kBackwardWeight: return Need{here.backward_input, ActionKind::kBackwardInput, v};
      default: return std::nullopt;
    }
  }

  bool advance(int stage) {
    const std::vector<Action>& list = schedule_.actions[size(stage)];
    bool moved = false;
    for (std::size_t& i = position_[size(stage)]; i < list.size(); ++i) {
      if (is_communication(list[i].kind)) continue;
      const int v = is_compute(list[i].kind) ? schedule_.virtual_stage(stage, list[i].chunk) : 0;
      const std::optional<Need> needed = need(list[i], v);
      if (needed && needed->time == kNotYet) return moved;
      take(stage, v, list[i], needed ? needed->time : 0);
      moved = true;
    }
    return moved;
  }

  void take(int stage, int v, const Action& action, double ready) {
    double& now = now_[size(stage)];
    const double start = std::max(now, ready);
    now = action.kind == ActionKind::kReduceGradients ? reduced(stage, start) : start + seconds(stage, v, action);
    timeline_.stages[size(stage)].push_back({action, start, now});
    if (!is_compute(action.kind)) return;
    Times& here = times(v, action.microbatch);
    const int m = action.microbatch;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
      last_backward_[size(v)] = {start, now};
    }
    if (action.kind == ActionKind::kForward) {
      here.forward = now;
      if (v + 1 < schedule_.virtual_stages()) times(v + 1, m).input = arrival(stage, v + 1, cost(v).output_bytes, now);
    } else if (action.kind == ActionKind::kBackwardWeight) {
      here.done = now;
    } else {
      here.backward_input = now;
      if (action.kind == ActionKind::kBackward) here.done = now;
      if (v > 0) times(v - 1, m).gradient = arrival(stage, v - 1, cost(v - 1).output_bytes, now);
    }
  }

  double seconds(int stage, int v, const Action& action) const {
    switch (action.kind) {
      case ActionKind::kForward: return cost(v).forward;
      case ActionKind::kBackward: return cost(v).backward_input + cost(v).backward_weight;
      case ActionKind::kBackwardInput: return cost(v).backward_input;
      case ActionKind::kBackwardWeight: return cost(v).backward_weight;
      case ActionKind::kOptimizerStep: return value_or_zero(costs_.optimizer, stage);
      default: return 0;
    }
  }

  // When a stage that has computed everything at time `computed` has its gradients summed up. Reductions run beside the
  // backward, which they slow down, and so does what they delay.
  double reduced(int stage, double computed) const {
    if (costs_.buckets.empty()) return computed;
    std::vector<Interval> busy;
    const auto delay = [&](double until) {
      double sum = 0;
      for (const Interval& interval : busy) sum += std::max(0.0, std::min(interval.end, until) - interval.start);
      return costs_.contention * sum;
    };
    double free = 0;
    for (const BucketCost& bucket : costs_.buckets[size(stage)]) {
      const Interval& backward = last_backward_[size(schedule_.virtual_stage(stage, bucket.chunk))];
      const double ready = backward.start + bucket.ready * (backward.end - backward.start);
      const double start = std::max(free, ready + delay(ready));
      free = start + bucket.seconds;
      busy.push_back({start, free});
    }
    return std::max(free, computed + delay(computed));
  }

  // When a message made at time `made` is there, after those before it.
  double arrival(int from, int to_virtual_stage, double bytes, double made) {
    const int to = schedule_.stage_of(to_virtual_stage);
    if (to == from || costs_.links.empty()) return made;
    const bool neighbours = to == from + 1 || from == to + 1;
    const Link& link = costs_.links.at(neighbours ? size(std::min(from, to)) : size(schedule_.stages) - 1);
    double& free = link_free_[size(from) * size(schedule_.stages) + size(to)];
    free = std::max(free, made) + link.seconds(bytes);
    return free;
  }

  void check_finished() {
    std::string waits;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const std::vector<Action>& list = schedule_.actions[size(stage)];
      const std::size_t i = position_[size(stage)];
      if (i == list.size()) continue;
      const std::optional<Need> needed = need(list[i], schedule_.virtual_stage(stage, list[i].chunk));
      if (!needed) continue;
      const int v = needed->virtual_stage;
      waits += fmt::format("{}stage {}, action {}: {} waits for {} of stage {}", waits.empty() ? "" : "; ", stage, i,
                           action_name(list[i]), action_name({needed->kind, list[i].microbatch, schedule_.chunk_of(v)}),
                           schedule_.stage_of(v));
    }
    if (!waits.empty()) fail("schedule '{}' cannot be run: {}", schedule_.name, waits);
  }

  void sum_up(int stage) {
    double idle = 0;
    double end = kNotYet;
    double bytes = 0;
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
      bytes += cost(schedule_.virtual_stage(stage, chunk)).resident_bytes;
    }
    double peak = bytes;
    for (const TimedAction& timed : timeline_.stages[size(stage)]) {
      const Action& action = timed.action;
      if (!is_compute(action.kind)) continue;
      if (end != kNotYet) idle += timed.start - end;
      end = timed.end;
      const int v = schedule_.virtual_stage(stage, action.chunk);
      if (action.kind == ActionKind::kForward) {
        bytes += cost(v).cache_bytes;
        peak = std::max(peak, bytes);
        if (times(v, action.microbatch).done == kNotYet) bytes -= cost(v).cache_bytes;  // nothing will need it
      } else if (action.kind != ActionKind::kBackwardInput) {
        bytes -= cost(v).cache_bytes;
      }
    }
    timeline_.idle.push_back(idle);
    timeline_.peak_bytes.push_back(peak);
  }

  const Schedule& schedule_;
  const CostModel& costs_;
  std::vector<Times> times_;           // by virtual stage, then microbatch
  std::vector<double> link_free_;      // by sending stage, then receiving stage
  std::vector<std::size_t> position_;  // by stage: in its list
  std::vector<double> now_;            // by stage: the end of what it did last
  std::vector<Interval>
      last_backward_;  // by virtual stage: of the last microbatch so far, what gives its weights' gradients
  Timeline timeline_;
};

}  // namespace

double Timeline::bubble() const { return idle.empty() ? 0 : *std::max_element(idle.begin(), idle.end()); }

CostModel unit_costs(const Schedule& schedule) {
  CostModel costs;
  costs.chunks.resize(static_cast<std::size_t>(schedule.virtual_stages()));
  return costs;
}

Timeline simulate(const Schedule& schedule, const CostModel& costs) { return Simulation(schedule, costs).run(); }

}  // namespace convoy
