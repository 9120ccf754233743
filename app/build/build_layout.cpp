// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_layout.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "app/build/build_backend.h"
#include "app/build/build_model.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

std::string describe_range(const UnitRange& range, const std::vector<UnitInfo>& units) {
  std::int64_t parameters = 0;
  for (int i = range.first; i < range.end; ++i) parameters += units[static_cast<std::size_t>(i)].parameters();
  const std::string& first = units[static_cast<std::size_t>(range.first)].name;
  const std::string& last = units[static_cast<std::size_t>(range.end - 1)].name;
  const int count = range.end - range.first;
  return fmt::format("{} ({} {}, {} parameters)", count == 1 ? first : first + " to " + last, count,
                     count == 1 ? "unit" : "units", parameters);
}

double range_seconds(const UnitRange& range, const std::vector<UnitCost>& costs) {
  double sum = 0;
  for (int i = range.first; i < range.end; ++i) sum += costs[static_cast<std::size_t>(i)].seconds();
  return sum;
}

// Whatever the batch.
Layout layout_of(const Config& config, int ranks) {
  const ParallelOptions& p = config.parallel;
  const bool cuts = p.mode == ParallelMode::kModel || p.mode == ParallelMode::kPipeline;
  const int stages = !cuts ? 1 : p.stages > 0 ? static_cast<int>(p.stages) : ranks;
  Layout layout;
  layout.mesh = Mesh(ranks, stages);
  layout.schedule = schedule_choice(p, stages).make();
  return layout;
}

}  // namespace

Layout plan_layout(const Config& config, int ranks) {
  Layout layout = layout_of(config, ranks);
  check_batch(config.train.global_batch_size, layout.mesh.replicas(), layout.schedule.microbatches);
  return layout;
}

std::int64_t batch_for(const Config& config, int ranks) {
  const Layout layout = layout_of(config, ranks);
  const std::int64_t parts = std::int64_t{layout.mesh.replicas()} * layout.schedule.microbatches;
  return (config.train.global_batch_size + parts - 1) / parts * parts;
}

std::vector<UnitCost> measure_units(const Config& config, const Dataset& data, std::int64_t samples,
                                    const DeviceChoice& device, int first, int step, const CheckStop& check_stop) {
  const auto infos = describe_model(config, *build_backend(config, device), data, samples);
  std::vector<Unit> units = build_units(config, data);
  std::vector<Candidate> candidates;
  for (auto i = static_cast<std::size_t>(first); i < units.size(); i += static_cast<std::size_t>(step)) {
    candidates.push_back(candidate(std::move(units[i]), infos, i));
  }
  const auto backend = build_backend(config, device);  // the units' memory goes with it
  return measure_units(*backend, std::move(candidates), [&] {
    if (check_stop) check_stop("measuring the units");
  });
}

std::vector<UnitCost> measure_costs(const Config& config, const Dataset& data, std::int64_t samples,
                                    const DeviceChoice& device, Communicator& all, const CheckStop& check_stop) {
  std::vector<UnitCost> own;
  agree(
      all, [&] { own = measure_units(config, data, samples, device, all.rank(), all.size(), check_stop); },
      "measuring the units");
  std::vector<std::vector<UnitCost>> by_rank;
  std::size_t count = 0;
  for (const std::string& text : all.all_gather(pack_costs(own), "unit costs")) {
    by_rank.push_back(unpack_costs(text));
    count += by_rank.back().size();
  }
  std::vector<UnitCost> costs;
  for (std::size_t i = 0; i < count; ++i) costs.push_back(by_rank[i % by_rank.size()][i / by_rank.size()]);
  return costs;
}

void cut_model(Layout& layout, const Config& config, const std::vector<UnitInfo>& units, double memory_bytes) {
  const ParallelOptions& p = config.parallel;
  if (layout.schedule.virtual_stages() == 1) {
    layout.partition = {{0, static_cast<int>(units.size())}};
  } else if (!p.partition.first_units.empty()) {
    layout.partition = partition_at_units(layout.schedule, units, p.partition.first_units);
  } else {
    const double bytes = p.stage_memory_gb > 0 ? p.stage_memory_gb * 1e9 : memory_bytes;
    layout.partition =
        partition_by_cost(layout.schedule, layout.costs, {bytes, config.slots_of_replica(layout.mesh.replicas())});
  }
}

std::vector<std::string> describe_stages(const Layout& layout, const std::vector<UnitInfo>& units) {
  const double all = layout.costs.empty() ? 0 : range_seconds({0, static_cast<int>(units.size())}, layout.costs);
  std::vector<std::string> lines;
  for (int stage = 0; stage < layout.schedule.stages; ++stage) {
    std::string line;
    double seconds = 0;
    for (const UnitRange& range : stage_chunks(layout.schedule, layout.partition, stage)) {
      line += (line.empty() ? "" : "; ") + describe_range(range, units);
      if (all > 0) seconds += range_seconds(range, layout.costs);
    }
    if (all > 0) line += fmt::format(", {:.1f} % of the time", 100 * seconds / all);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace convoy
