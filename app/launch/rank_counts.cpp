// SPDX-License-Identifier: Apache-2.0
#include "app/launch/rank_counts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "app/build/build_data.h"
#include "app/build/build_layout.h"
#include "app/build/build_model.h"
#include "layers/base/error.h"

namespace convoy {

RankCounts::RankCounts(const Config& config)
    : config_(config),
      data_(build_dataset(config, config.data.train, "data.train")),
      units_(static_cast<int>(build_units(config, *data_).size())) {}

std::string RankCounts::problem(int ranks) const {
  try {
    const Layout layout = plan_layout(config_, ranks);
    const Schedule& schedule = layout.schedule;
    check_plan(config_, {data_->size(), config_.train.global_batch_size, config_.data.drop_last},
               std::int64_t{layout.mesh.replicas()} * schedule.microbatches);
    const auto chunks = static_cast<std::size_t>(schedule.virtual_stages());
    const std::size_t named = config_.parallel.partition.first_units.size();
    if (schedule.virtual_stages() > units_) {
      return fmt::format("{} chunks are wanted and the model has {} units", chunks, units_);
    }
    if (chunks > 1 && named > 0 && named != chunks) {
      return fmt::format("parallel.partition names {} chunks and {} are wanted", named, chunks);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::optional<HostList> choose_hosts(const HostList& usable, const HostList& in_use, NodeRange nodes,
                                     const RankProblem& problem) {
  const auto used = [&](const Host& host) {
    return std::any_of(in_use.begin(), in_use.end(), [&](const Host& other) { return other.name == host.name; });
  };
  HostList order;
  for (const Host& old : in_use) {
    const auto now =
        std::find_if(usable.begin(), usable.end(), [&](const Host& host) { return host.name == old.name; });
    if (now != usable.end()) order.push_back(*now);
  }
  std::copy_if(usable.begin(), usable.end(), std::back_inserter(order), [&](const Host& host) { return !used(host); });
  for (int count = std::min(nodes.max, static_cast<int>(order.size())); count >= nodes.min; --count) {
    HostList chosen(order.begin(), order.begin() + count);
    if (problem(count_slots(chosen)).empty()) return chosen;
  }
  return std::nullopt;
}

void check_nodes(const HostList& usable, NodeRange nodes, int per_node, const RankProblem& problem) {
  if (choose_hosts(usable, {}, nodes, problem)) return;
  const bool all_there = static_cast<int>(usable.size()) >= nodes.max;
  if (per_node == 0 && !all_there) return;  // hosts to come may have other slots
  std::string why;
  for (int count = nodes.min; count <= nodes.max; ++count) {
    const bool there = count <= static_cast<int>(usable.size());
    const int ranks = there ? count_slots({usable.begin(), usable.begin() + count}) : count * per_node;
    const std::string text = problem(ranks);
    if (text.empty()) return;
    if (why.empty()) why = fmt::format("{} ranks: {}", ranks, text);
  }
  std::string would;
  for (int ranks = 1, found = 0; ranks <= 1024 && found < 8; ++ranks) {
    if (!problem(ranks).empty()) continue;
    would += fmt::format("{}{}", found == 0 ? "" : ", ", ranks);
    ++found;
  }
  fail_usage("launch: no number of hosts from {} to {} suits the config; {} (numbers of ranks that do: {})", nodes.min,
             nodes.max, why, would.empty() ? "none" : would);
}

}  // namespace convoy
