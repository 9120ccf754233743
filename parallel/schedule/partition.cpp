// SPDX-License-Identifier: Apache-2.0
//
// partition_by_cost: dynamic programming finds the ranges whose largest cost is least (the linear partition problem),
// then single cuts are moved while that makes the slowest rank, which may hold several chunks, faster.
#include "parallel/schedule/partition.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>

#include "layers/base/option_error.h"

namespace convoy {

namespace {

constexpr double kNominalBandwidth = 10e9;  // bytes per second: memory of a node, or a fast network
constexpr double kNever = std::numeric_limits<double>::infinity();

class Partitioner {
 public:
  Partitioner(const Schedule& schedule, std::span<const UnitCost> costs, const MemoryLimit& limit)
      : schedule_(schedule), costs_(costs), limit_(limit) {
    for (int stage = 0; stage < schedule.stages; ++stage) in_flight_.push_back(activations_in_flight(schedule, stage));
  }

  [[nodiscard]] Partition best() const {
    Partition cut = linear_partition();
    if (cut.empty()) refuse_memory();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 1; i < cut.size(); ++i) moved = try_move(cut, i, -1) || try_move(cut, i, 1) || moved;
    }
    return cut;
  }

 private:
  using Score = std::tuple<double, double, double>;  // slowest rank, slowest chunk, bytes between stages

  [[nodiscard]] double seconds(const UnitRange& range) const {
    double sum = 0;
    for (int i = range.first; i < range.end; ++i) sum += costs_[static_cast<std::size_t>(i)].seconds();
    if (range.end < static_cast<int>(costs_.size())) {
      sum += costs_[static_cast<std::size_t>(range.end - 1)].output_bytes / kNominalBandwidth;
    }
    return sum;
  }

  /// Each chunk of a stage has an equal part of the stage's limit.
  [[nodiscard]] double bytes(int virtual_stage, const UnitRange& range) const {
    const int stage = schedule_.stage_of(virtual_stage);
    double resident = 0, cache = 0;
    for (int i = range.first; i < range.end; ++i) {
      resident += costs_[static_cast<std::size_t>(i)].parameter_bytes * (2 + limit_.optimizer_slots);
      cache += costs_[static_cast<std::size_t>(i)].cache_bytes;
    }
    return resident + cache * in_flight_[static_cast<std::size_t>(stage)] / schedule_.chunks;
  }

  [[nodiscard]] bool fits(int virtual_stage, const UnitRange& range) const {
    return limit_.bytes <= 0 || bytes(virtual_stage, range) <= limit_.bytes / schedule_.chunks;
  }

  [[nodiscard]] Score score(const Partition& cut) const {
    std::vector<double> rank(static_cast<std::size_t>(schedule_.stages), 0.0);
    double slowest = 0, between = 0;
    for (std::size_t v = 0; v < cut.size(); ++v) {
      if (!fits(static_cast<int>(v), cut[v])) return {kNever, kNever, kNever};
      const double time = seconds(cut[v]);
      rank[static_cast<std::size_t>(schedule_.stage_of(static_cast<int>(v)))] += time;
      slowest = std::max(slowest, time);
      if (v + 1 < cut.size()) between += costs_[static_cast<std::size_t>(cut[v].end - 1)].output_bytes;
    }
    return {*std::max_element(rank.begin(), rank.end()), slowest, between};
  }

  bool try_move(Partition& cut, std::size_t i, int by) const {
    Partition other = cut;
    other[i - 1].end += by;
    other[i].first += by;
    if (other[i - 1].first >= other[i - 1].end || other[i].first >= other[i].end) return false;
    if (score(other) >= score(cut)) return false;
    cut = other;
    return true;
  }

  // best[v][end]: the least largest cost of chunks 0..v that cover the first `end` units. Empty when none fits.
  [[nodiscard]] Partition linear_partition() const {
    const int units = static_cast<int>(costs_.size());
    const int chunks = schedule_.virtual_stages();
    const auto row = static_cast<std::size_t>(units) + 1;
    std::vector<std::vector<double>> best(static_cast<std::size_t>(chunks), std::vector<double>(row, kNever));
    std::vector<std::vector<int>> from(static_cast<std::size_t>(chunks), std::vector<int>(row, 0));
    for (int v = 0; v < chunks; ++v) {
      for (int end = v + 1; end <= units - (chunks - 1 - v); ++end) {
        for (int first = v; first < end; ++first) {
          const auto before = static_cast<std::size_t>(v) - 1;
          const double rest = v > 0 ? best[before][static_cast<std::size_t>(first)] : (first == 0 ? 0 : kNever);
          if (rest == kNever || !fits(v, {first, end})) continue;
          const double cost = std::max(rest, seconds({first, end}));
          auto& entry = best[static_cast<std::size_t>(v)][static_cast<std::size_t>(end)];
          if (cost >= entry) continue;
          entry = cost;
          from[static_cast<std::size_t>(v)][static_cast<std::size_t>(end)] = first;
        }
      }
    }
    if (best.back().back() == kNever) return {};
    Partition cut(static_cast<std::size_t>(chunks));
    int end = units;
    for (int v = chunks; v-- > 0;) {
      const int first = from[static_cast<std::size_t>(v)][static_cast<std::size_t>(end)];
      cut[static_cast<std::size_t>(v)] = {first, end};
      end = first;
    }
    return cut;
  }

  [[noreturn]] void refuse_memory() const {
    const double one = limit_.bytes / 1e9;
    fail_option("parallel.stage_memory_gb",
                "no cut into {} stages of {} keeps each within {:.3g} GB (more stages, more "
                "microbatches with schedule = \"1f1b\", a smaller train.global_batch_size, or a higher limit)",
                schedule_.stages, schedule_.chunks == 1 ? "one chunk" : fmt::format("{} chunks", schedule_.chunks),
                one);
  }

  const Schedule& schedule_;
  std::span<const UnitCost> costs_;
  MemoryLimit limit_;
  std::vector<int> in_flight_;
};

void refuse_too_many_stages(const Schedule& schedule, int units) {
  if (schedule.virtual_stages() <= units) return;
  const int most = units / schedule.chunks;
  fail_option("parallel.stages",
              "{} stages of {} {} need {} units, and the model has {} (at most {} stages; fewer ranks, or set "
              "parallel.stages for several replicas)",
              schedule.stages, schedule.chunks, schedule.chunks == 1 ? "chunk" : "chunks", schedule.virtual_stages(),
              units, most);
}

}  // namespace

Partition partition_by_cost(const Schedule& schedule, std::span<const UnitCost> costs, const MemoryLimit& limit) {
  refuse_too_many_stages(schedule, static_cast<int>(costs.size()));
  return Partitioner(schedule, costs, limit).best();
}

Partition partition_at_units(const Schedule& schedule, std::span<const UnitInfo> units,
                             std::span<const std::string> first_units) {
  refuse_too_many_stages(schedule, static_cast<int>(units.size()));
  const auto wanted = static_cast<std::size_t>(schedule.virtual_stages());
  std::string known;
  for (const UnitInfo& unit : units) known += (known.empty() ? "" : ", ") + unit.name;
  if (first_units.size() != wanted) {
    fail_option("parallel.partition",
                "names {} units for {} stages with {} {} each (name the first unit of each of {})", first_units.size(),
                schedule.stages, schedule.chunks, schedule.chunks == 1 ? "chunk" : "chunks", wanted);
  }
  Partition cut;
  for (const std::string& name : first_units) {
    const auto at = std::find_if(units.begin(), units.end(), [&](const UnitInfo& unit) { return unit.name == name; });
    if (at == units.end()) fail_option("parallel.partition", "the model has no unit \"{}\" (it has {})", name, known);
    const int first = static_cast<int>(at - units.begin());
    if (cut.empty() && first != 0) {
      fail_option("parallel.partition", "begins with \"{}\" (it must begin with the first unit, \"{}\")", name,
                  units.front().name);
    }
    if (!cut.empty()) {
      if (first <= cut.back().first) {
        fail_option("parallel.partition", "\"{}\" does not come after \"{}\" (the model's order is {})", name,
                    units[static_cast<std::size_t>(cut.back().first)].name, known);
      }
      cut.back().end = first;
    }
    cut.push_back({first, static_cast<int>(units.size())});
  }
  return cut;
}

std::vector<UnitRange> stage_chunks(const Schedule& schedule, const Partition& partition, int stage) {
  std::vector<UnitRange> chunks;
  chunks.reserve(static_cast<std::size_t>(schedule.chunks));
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    chunks.push_back(partition[static_cast<std::size_t>(schedule.virtual_stage(stage, chunk))]);
  }
  return chunks;
}

std::vector<ChunkCost> chunk_costs(const Partition& partition, std::span<const UnitCost> costs,
                                   double optimizer_slots) {
  std::vector<ChunkCost> chunks;
  chunks.reserve(partition.size());
  for (const UnitRange& range : partition) {
    ChunkCost chunk{0, 0, 0, 0, 0, 0};
    for (int i = range.first; i < range.end; ++i) {
      const UnitCost& unit = costs[static_cast<std::size_t>(i)];
      chunk.forward += unit.forward;
      chunk.backward_input += unit.backward_input;
      chunk.backward_weight += unit.backward_weight;
      chunk.cache_bytes += unit.cache_bytes;
      chunk.resident_bytes += unit.parameter_bytes * (2 + optimizer_slots);
      chunk.output_bytes = unit.output_bytes;
    }
    chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace convoy
