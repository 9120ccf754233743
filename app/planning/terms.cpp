// SPDX-License-Identifier: Apache-2.0
#include "app/planning/terms.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "layers/base/did_you_mean.h"
#include "layers/base/error.h"

namespace convoy {

std::vector<Term> parse_terms(const std::vector<std::string>& names, std::string_view option) {
  std::vector<Term> terms;
  for (const std::string& name : names) {
    const std::optional<Term> term = from_string<Term>(name);
    if (!term) {
      const std::string near = did_you_mean(name, EnumNames<Term>::names);
      fail_usage("{}: no term \"{}\" ({})", option, name,
                 near.empty() ? "terms: " + join(EnumNames<Term>::names) : fmt::format("did you mean \"{}\"?", near));
    }
    terms.push_back(*term);
  }
  return terms;
}

MachineModel without(MachineModel machine, Term term) {
  switch (term) {
    case Term::kLaunch: machine.gpu.kernel_seconds = 0; break;
    case Term::kTiles: machine.gpu.multiprocessors = 0; break;
    case Term::kOptimizer: machine.optimizer_seconds = 0; break;
    case Term::kLinks: machine.sends = false; break;
    case Term::kReduce: machine.reduces = false; break;
    case Term::kLatency: machine.cluster.node.latency = machine.cluster.network.latency = 0; break;
    case Term::kSharing: machine.cluster.cards = machine.cluster.node_shared = 0; break;
    case Term::kContention: machine.contention = 0; break;
    case Term::kFixed: machine.step_seconds = 0; break;
    case Term::kJitter: machine.jitter = 0; break;
    case Term::kInput: machine.input_samples_per_second = 0; break;
    case Term::kBuckets: machine.overlaps = false; break;
    case Term::kEvaluation: machine.job.evaluates = false; break;
    case Term::kCheckpoint: machine.job.checkpoints = false; break;
    case Term::kStartup: machine.job.startup_seconds = 0; break;
  }
  return machine;
}

std::vector<StepPart> step_parts(const Prediction& prediction, const Config& config, const MachineModel& machine) {
  constexpr auto kParts = static_cast<std::size_t>(Term::kInput) + 1;
  // machines[i] has the first i terms.
  std::vector<MachineModel> machines(kParts + 1, machine);
  for (std::size_t i = 0; i < kParts; ++i) {
    for (std::size_t term = i; term < kParts; ++term) {
      machines[i] = without(std::move(machines[i]), static_cast<Term>(term));
    }
  }
  std::vector<StepPart> parts;
  double before = 0;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const Prediction p = predict(prediction.layout, config, machines[i], prediction.global_batch);
    if (i == 0) {
      parts.push_back({"compute", p.seconds - p.timeline.bubble()});
      parts.push_back({"bubble", p.timeline.bubble()});
    } else {
      parts.push_back({to_string(static_cast<Term>(i - 1)), p.seconds - before});
    }
    before = p.seconds;
  }
  return parts;
}

}  // namespace convoy
