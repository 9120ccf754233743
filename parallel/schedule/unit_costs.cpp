// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/unit_costs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/median.h"
#include "layers/base/random.h"
#include "layers/base/rehearsal.h"
#include "layers/base/stopwatch.h"

namespace convoy {

namespace {

constexpr int kMinRounds = 3;
constexpr int kMaxRounds = 25;
constexpr double kEnoughSeconds = 0.15;  // per unit, for units that are quick

// Numbers like those of activations: zeros would be too easy for some kernels.
Tensor random_tensor(Backend& backend, std::int64_t count, std::uint64_t key) {
  Tensor plain = backend.tensor({count}, DType::kF32);
  if (!rehearsing()) {
    std::vector<float> host(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_uniform(key, i % 65536) - 0.5);
    backend.copy_from_host(host.data(), plain);
  }
  if (backend.compute_type() == DType::kF32) return plain;
  Tensor typed = backend.tensor({count}, backend.compute_type());
  backend.run(ops::Cast{plain, typed});
  return typed;
}

// One unit with parameters of its own, and the quickest of its passes.
class Probe {
 public:
  Probe(Backend& backend, Candidate candidate) : backend_(backend), candidate_(std::move(candidate)), store_(backend) {
    const UnitInfo& info = candidate_.info;
    BuildContext context{backend, store_};
    static_cast<void>(build_unit(context, candidate_.unit, info.input));
    if (candidate_.lowest) candidate_.unit.layer->skip_input_gradient();
    store_.finalize(0);
    store_.begin_step();
    cache_ = make_cache(backend, context.layers, context.needs_position);
    const auto element = static_cast<double>(dtype_size(backend.compute_type()));
    best_ = {kNever, kNever,
             kNever, element * static_cast<double>(info.output.size()),
             0,      info.frozen ? 0 : 4.0 * static_cast<double>(info.parameters())};
  }

  /// Returns the seconds of one pass; counts it unless it only warms up. Waits for the device before each lap.
  double pass(const Tensor& inputs, const Tensor& gradients, bool counts) {
    Layer& layer = *candidate_.unit.layer;
    auto lap = [this, watch = Stopwatch()]() mutable {
      backend_.synchronize();
      return watch.lap();
    };
    const bool below = candidate_.below;
    lap();
    const Tensor y =
        layer.forward(inputs.view(0, candidate_.info.input), cache_, below ? Mode::kEvaluation : Mode::kTraining);
    const double forward = lap();
    best_.cache_bytes = static_cast<double>(cache_.bytes());
    lap();
    if (!below) layer.backward_input(gradients.view(0, candidate_.info.output), cache_);
    const double backward_input = below ? 0 : lap();
    if (!below) layer.backward_weight(cache_);
    backend_.finish_gradients();
    const double backward_weight = below ? 0 : lap();
    if (counts) {
      best_.forward = std::min(best_.forward, forward);
      best_.backward_input = std::min(best_.backward_input, backward_input);
      best_.backward_weight = std::min(best_.backward_weight, backward_weight);
    }
    return forward + backward_input + backward_weight;
  }

  /// Units run one at a time here: what recomputation adds follows.
  [[nodiscard]] UnitCost best() const {
    const Candidate& c = candidate_;
    if (c.unit.block == 0 || c.below) return best_;
    const auto element = static_cast<double>(dtype_size(backend_.compute_type()));
    return recomputed(best_, c.begins_block ? element * static_cast<double>(c.info.input.size()) : 0);
  }

 private:
  static constexpr double kNever = 1e30;
  Backend& backend_;
  Candidate candidate_;
  ParameterStore store_;
  Cache cache_{0};
  UnitCost best_;
};

}  // namespace

Candidate candidate(Unit unit, const std::vector<UnitInfo>& infos, std::size_t index) {
  const auto lowest = static_cast<std::size_t>(lowest_learning(infos));
  const bool begins_block =
      infos[index].block != 0 && (index <= lowest || infos[index - 1].block != infos[index].block);
  return {std::move(unit), infos[index], index == lowest, index < lowest, begins_block};
}

UnitCost recomputed(const UnitCost& cost, double input_bytes) {
  UnitCost other = cost;
  other.backward_input += cost.forward;
  other.cache_bytes = input_bytes;
  return other;
}

std::vector<UnitCost> recomputed(std::vector<UnitCost> costs, const std::vector<int>& blocks) {
  if (blocks.size() != costs.size()) fail("costs of {} units, and blocks of {}", costs.size(), blocks.size());
  bool continues = false;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    UnitCost& cost = costs[i];
    const bool has_backward = cost.backward_input + cost.backward_weight > 0;  // below what learns it has none
    const bool begins = !continues || blocks[i - 1] != blocks[i];
    continues = blocks[i] != 0 && has_backward;
    if (!continues) continue;
    cost = recomputed(cost, !begins ? 0 : i == 0 ? cost.cache_bytes : costs[i - 1].output_bytes);
  }
  return costs;
}

std::vector<UnitCost> measure_units(Backend& backend, std::vector<Candidate> candidates,
                                    const std::function<void()>& after_round) {
  std::int64_t largest_input = 0, largest_output = 0;
  std::vector<std::unique_ptr<Probe>> probes;
  for (Candidate& candidate : candidates) {
    largest_input = std::max(largest_input, candidate.info.input.size());
    largest_output = std::max(largest_output, candidate.info.output.size());
    probes.push_back(std::make_unique<Probe>(backend, std::move(candidate)));
  }
  const Tensor inputs = random_tensor(backend, largest_input, 1), gradients = random_tensor(backend, largest_output, 2);
  const double enough = kEnoughSeconds * static_cast<double>(probes.size());
  std::vector<double> rounds;
  double spent = 0;
  for (int round = -1; round < kMaxRounds && (round < kMinRounds || spent < enough); ++round) {
    double seconds = 0;
    for (auto& probe : probes) seconds += probe->pass(inputs, gradients, round >= 0);
    if (after_round) after_round();
    if (round < 0) continue;  // makes plans and asks for memory
    rounds.push_back(seconds);
    spent += seconds;
  }
  std::vector<UnitCost> costs;
  double quickest = 0;
  for (const auto& probe : probes) quickest += costs.emplace_back(probe->best()).seconds();
  const double usual = probes.empty() ? 1 : median(rounds) / quickest;
  for (UnitCost& cost : costs) {
    cost.forward *= usual;
    cost.backward_input *= usual;
    cost.backward_weight *= usual;
  }
  return costs;
}

std::string pack_costs(const std::vector<UnitCost>& costs) {
  std::string text;
  for (const UnitCost& c : costs) {
    text += fmt::format("{:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g}\n", c.forward, c.backward_input,
                        c.backward_weight, c.output_bytes, c.cache_bytes, c.parameter_bytes);
  }
  return text;
}

std::vector<UnitCost> unpack_costs(const std::string& text) {
  std::vector<UnitCost> costs;
  std::istringstream lines(text);
  for (UnitCost c; lines >> c.forward >> c.backward_input >> c.backward_weight >> c.output_bytes >> c.cache_bytes >>
                   c.parameter_bytes;) {
    costs.push_back(c);
  }
  if (!lines.eof()) fail("unit costs that are no numbers: {}", text.substr(0, 80));
  return costs;
}

}  // namespace convoy
