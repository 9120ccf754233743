// SPDX-License-Identifier: Apache-2.0
#include "app/planning/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "app/build/build_model.h"
#include "app/build/memory_prediction.h"
#include "app/planning/replica_traffic.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxMicrobatches = 256;
constexpr int kMaxChunks = 4;

// By stage: links to the next stage; the widest of a replica's places in the nodes counts, so replica 0 stands for all.
std::vector<Link> stage_links(const Cluster& cluster, int stages) {
  std::vector<Link> links;
  links.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) links.push_back(cluster.link(stage, (stage + 1) % stages));
  return links;
}

CostModel cost_model(const Layout& layout, const Config& config, const MachineModel& machine, std::int64_t samples,
                     double slots) {
  CostModel model;
  const Schedule& schedule = layout.schedule;
  const int replicas = layout.mesh.replicas();
  model.chunks = chunk_costs(layout.partition, layout.costs, slots);
  // Ranks that compute alone are not slowed down by others; measured costs are those of a crowd.
  const bool alone = replicas == 1 && (schedule.stages == 1 || schedule.microbatches == 1);
  for (ChunkCost& chunk : model.chunks) {
    const double factor = alone ? 1 / machine.crowding : 1;
    chunk.forward *= factor;
    chunk.backward_input *= factor;
    chunk.backward_weight *= factor;
  }
  if (machine.sends) model.links = stage_links(machine.cluster, schedule.stages);
  model.contention = machine.contention;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    double parameters = 0;
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      const auto v = static_cast<std::size_t>(schedule.virtual_stage(stage, chunk));
      parameters += model.chunks[v].resident_bytes / (2 + slots);
    }
    if (machine.reduces && replicas > 1) model.buckets.push_back(bucket_costs(layout, config, machine, stage));
    model.optimizer.push_back(parameters * machine.optimizer_seconds /
                                  (config.parallel.shard_optimizer ? replicas : 1) +
                              gather_seconds(layout, config, machine, stage));
  }
  const HeadTraffic head = head_traffic(layout, config, machine, samples);
  model.chunks.back().forward += head.forward;
  model.chunks.back().backward_input += head.backward;
  return model;
}

// Of the whole step, from that of a rank at its mean.
double step_seconds(double rank_seconds, const MachineModel& machine, int ranks, std::int64_t global_batch) {
  double seconds = rank_seconds + machine.step_seconds;
  if (machine.jitter > 0) {
    seconds += rank_seconds * machine.jitter * expected_maximum(ranks, machine.jitter_distribution);
  }
  if (machine.input_samples_per_second > 0) {  // batches are read beside the step before
    const int per_node = machine.cluster.ranks_per_node;
    const double nodes = per_node == 0 ? 1 : std::ceil(static_cast<double>(ranks) / per_node);
    seconds = std::max(seconds, static_cast<double>(global_batch) / (nodes * machine.input_samples_per_second));
  }
  return seconds;
}

// What could be tried for these numbers; make_schedule() says what suits.
std::vector<ScheduleChoice> schedule_choices(int stages, int microbatches) {
  if (stages == 1) return {{"one_stage", 1, microbatches, 1}};
  if (microbatches == 1) return {{"model", stages, 1, 1}};
  std::vector<ScheduleChoice> all{{"gpipe", stages, microbatches, 1},
                                  {"1f1b", stages, microbatches, 1},
                                  {"zero_bubble", stages, microbatches, 1},
                                  {"zb_v", stages, microbatches, 2}};
  for (int chunks = 2; chunks <= kMaxChunks && microbatches % stages == 0; ++chunks) {
    all.push_back({"interleaved", stages, microbatches, chunks});
  }
  return all;
}

// Of all units, as model.recompute says, or with "blocks" where it says nothing.
std::vector<int> unit_blocks(Config config) {
  if (config.model.recompute == RecomputeOptions()) config.model.recompute = {true, {}};
  std::vector<int> blocks;
  for (const Unit& unit : build_units(config, 1)) blocks.push_back(unit.block);
  return blocks;
}

}  // namespace

void set_memory(Prediction& prediction, std::vector<double> bytes) {
  prediction.timeline.peak_bytes = std::move(bytes);
  const std::vector<double>& peaks = prediction.timeline.peak_bytes;
  prediction.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
}

Prediction predict(Layout layout, const Config& config, const MachineModel& machine, std::int64_t global_batch) {
  const std::int64_t samples = layout.microbatch(global_batch);
  const double slots = config.slots_of_replica(layout.mesh.replicas());
  layout.costs = costs_of_rank(machine.costs(samples), config, layout.mesh.replicas());
  if (layout.recompute || config.model.recompute != RecomputeOptions()) {
    layout.costs = recomputed(std::move(layout.costs), unit_blocks(config));
  }
  layout.costs.front().forward += machine.input_seconds * static_cast<double>(samples);
  if (layout.partition.empty()) {
    layout.partition = partition_by_cost(layout.schedule, layout.costs, {machine.memory_bytes, slots});
  }
  Prediction prediction{std::move(layout), global_batch, {}, 0, 0};
  const CostModel model = cost_model(prediction.layout, config, machine, samples, slots);
  prediction.timeline = simulate(prediction.layout.schedule, model);
  prediction.seconds = step_seconds(prediction.timeline.seconds, machine, prediction.layout.mesh.ranks(), global_batch);
  set_memory(prediction, prediction.timeline.peak_bytes);
  return prediction;
}

LayoutMemory rehearsed_memory(const Config& config, const Dataset& data, const DeviceChoice& device,
                              double host_bytes) {
  const DataShape shape = data_shape(config, data);
  return [&config, &device, shape, host_bytes](const Layout& layout, std::int64_t global_batch) {
    Config planned = config;
    planned.train.global_batch_size = global_batch;
    if (layout.recompute) planned.model.recompute = {true, {}};
    planned.parallel.mode = layout.mesh.stages() > 1 ? ParallelMode::kPipeline : ParallelMode::kData;
    std::vector<double> bytes;
    for (int stage = 0; stage < layout.mesh.stages(); ++stage) {
      const int rank = layout.mesh.world_rank(0, stage);  // replica 0 writes checkpoints
      const MemoryPrediction p =
          predict_memory({planned, layout, rank, shape, std::nullopt, RunPurpose::kTraining, device});
      bytes.push_back(device.on_gpu() ? p.tensors : host_bytes + p.tensors - p.untouched + p.host());
    }
    return bytes;
  };
}

std::vector<Prediction> best_layouts(const Config& config, const MachineModel& machine, int ranks,
                                     std::int64_t global_batch, int top, const LayoutMemory& memory,
                                     const std::function<void()>& after_layout) {
  std::vector<Prediction> found;
  const int units = static_cast<int>(machine.units());
  // What does not fit in memory is tried with recomputed blocks, unless the config says what is recomputed.
  const bool may_recompute =
      config.model.recompute == RecomputeOptions() && static_cast<int>(unit_blocks(config).size()) == units;
  const auto fits = [&](const Prediction& p) {
    return machine.memory_bytes <= 0 || p.peak_bytes <= machine.memory_bytes;
  };
  const auto attempt = [&](Layout layout) -> std::optional<Prediction> {
    try {
      return predict(std::move(layout), config, machine, global_batch);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;  // else: no cut fits in memory
      return std::nullopt;
    }
  };
  const int most_stages = config.parallel.shard_head ? 1 : std::min(ranks, units);  // it is for data parallelism
  for (int stages = 1; stages <= most_stages; ++stages) {
    if (ranks % stages != 0) continue;
    const std::int64_t replicas = ranks / stages;
    if (global_batch % replicas != 0) continue;
    const std::int64_t share = global_batch / replicas;
    for (int microbatches = 1; microbatches <= std::min<std::int64_t>(share, kMaxMicrobatches); ++microbatches) {
      if (share % microbatches != 0) continue;
      for (const ScheduleChoice& choice : schedule_choices(stages, microbatches)) {
        if (choice.stages * choice.chunks > units) continue;
        if (after_layout) after_layout();
        Layout layout;
        layout.mesh = Mesh(ranks, stages);
        layout.schedule = make_schedule(choice.name, choice.stages, choice.microbatches, choice.chunks);
        for (const bool recompute : {false, true}) {
          if (recompute && !may_recompute) break;
          layout.recompute = recompute;
          std::optional<Prediction> prediction = attempt(layout);
          if (!prediction || (!memory && !fits(*prediction))) continue;
          found.push_back(std::move(*prediction));
          break;
        }
      }
    }
  }
  const auto faster = [](const Prediction& a, const Prediction& b) { return a.seconds < b.seconds; };
  std::stable_sort(found.begin(), found.end(), faster);
  std::string refused;  // why the model did not take a layout, the last time
  if (memory) {         // as many as are asked for: a rehearsal takes a good part of a second
    std::vector<Prediction> fitting;
    for (std::size_t i = 0; i < found.size() && static_cast<int>(fitting.size()) < top; ++i) {
      if (after_layout) after_layout();
      Prediction& prediction = found[i];
      try {
        set_memory(prediction, memory(prediction.layout, global_batch));
      } catch (const Error& error) {
        if (error.code() != ExitCode::kUsage) throw;
        refused = error.what();  // no candidate for this model
        continue;
      }
      if (fits(prediction)) {
        fitting.push_back(std::move(prediction));
      } else if (may_recompute && !prediction.layout.recompute) {
        Layout layout = prediction.layout;
        layout.partition.clear();
        layout.recompute = true;
        if (std::optional<Prediction> other = attempt(std::move(layout))) {
          found.insert(
              std::upper_bound(found.begin() + static_cast<std::ptrdiff_t>(i) + 1, found.end(), *other, faster),
              std::move(*other));
        }
      }
    }
    found = std::move(fitting);
  }
  if (found.empty()) {
    fail_usage("--ranks: no layout of {} ranks suits a batch of {} and {} units within {:.3g} GB a rank{}", ranks,
               global_batch, units, machine.memory_bytes / 1e9, refused.empty() ? "" : ": " + refused);
  }
  if (static_cast<int>(found.size()) > top) found.resize(static_cast<std::size_t>(top));
  return found;
}

}  // namespace convoy
