// SPDX-License-Identifier: Apache-2.0
#include "app/planning/replica_traffic.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "app/build/build_backend.h"
#include "layers/base/shape.h"
#include "parallel/engine/gradient_buckets.h"

namespace convoy {

namespace {

constexpr double kMaxBuckets = 1000;  // of a stage; smaller ones are joined

// What a stage's flat gradient buffer holds, in its order: that of the backward.
struct GradientRange {
  double end = 0;    // in bytes of the buffer
  int chunk = 0;     // whose backward makes it,
  double ready = 0;  // as a share of the time of that backward
};

std::vector<GradientRange> gradient_ranges(const Layout& layout, const Config& config, int stage) {
  std::vector<GradientRange> ranges;
  const int sharded = config.parallel.shard_head ? static_cast<int>(layout.costs.size()) - 1 : -1;
  double end = 0;
  const std::vector<UnitRange> chunks = stage_chunks(layout.schedule, layout.partition, stage);
  for (int chunk = static_cast<int>(chunks.size()) - 1; chunk >= 0; --chunk) {
    const UnitRange& range = chunks[static_cast<std::size_t>(chunk)];
    const auto backward = [&](int unit) {
      const UnitCost& cost = layout.costs[static_cast<std::size_t>(unit)];
      return cost.backward_input + cost.backward_weight;
    };
    double all = 0, passed = 0;
    for (int unit = range.first; unit < range.end; ++unit) all += backward(unit);
    for (int unit = range.end - 1; unit >= range.first; --unit) {
      passed += backward(unit);
      if (unit != sharded) end += layout.costs[static_cast<std::size_t>(unit)].parameter_bytes;
      ranges.push_back({end, chunk, all > 0 ? passed / all : 1});
    }
  }
  return ranges;
}

bool has_sharded_head(const Config& config, int replicas) { return config.parallel.shard_head && replicas > 1; }

}  // namespace

std::vector<BucketCost> bucket_costs(const Layout& layout, const Config& config, const MachineModel& machine,
                                     int stage) {
  const std::vector<GradientRange> gradients = gradient_ranges(layout, config, stage);
  const double bytes = gradients.back().end;
  if (bytes <= 0) return {};
  const int replicas = layout.mesh.replicas(), stages = layout.mesh.stages();
  const auto seconds = [&](double part) {
    return config.parallel.shard_optimizer ? all_gather_seconds(machine.cluster, part, replicas, stages)
                                           : all_reduce_time(machine.cluster, part, replicas, stages).seconds;
  };
  if (!machine.overlaps) return {{0, 1, seconds(bytes)}};
  const auto size = [&](double mib) {
    return static_cast<std::int64_t>(std::clamp(mib * (1 << 20), bytes / kMaxBuckets, bytes));
  };
  const ParallelOptions& p = config.parallel;
  std::vector<BucketCost> buckets;
  auto at = gradients.begin();
  for (const BucketRange& range :
       bucket_ranges(static_cast<std::int64_t>(bytes / sizeof(float)), size(p.first_bucket_mb), size(p.bucket_mb))) {
    while (at->end < sizeof(float) * static_cast<double>(range.end)) ++at;
    buckets.push_back({at->chunk, at->ready, seconds(sizeof(float) * static_cast<double>(range.size()))});
  }
  return buckets;
}

double gather_seconds(const Layout& layout, const Config& config, const MachineModel& machine, int stage) {
  if (!config.parallel.shard_optimizer || !machine.reduces) return 0;
  double bytes = 0, forward = 0;
  for (const UnitRange& chunk : stage_chunks(layout.schedule, layout.partition, stage)) {
    for (int unit = chunk.first; unit < chunk.end; ++unit) {
      const UnitCost& cost = layout.costs[static_cast<std::size_t>(unit)];
      bytes += cost.parameter_bytes;
      forward += cost.forward;
    }
  }
  const double seconds = all_gather_seconds(machine.cluster, bytes, layout.mesh.replicas(), layout.mesh.stages());
  const bool hides = machine.overlaps && !config.device.graphs && config.train.ema_decay == 0;
  return hides ? std::max(0.0, seconds - forward) : seconds;
}

HeadTraffic head_traffic(const Layout& layout, const Config& config, const MachineModel& machine,
                         std::int64_t samples) {
  const int replicas = layout.mesh.replicas();
  if (!has_sharded_head(config, replicas) || !machine.reduces) return {};
  const UnitCost& head = layout.costs.back();
  const auto element = static_cast<double>(dtype_size(compute_type(config.train.precision)));
  const double classes = head.output_bytes / element / static_cast<double>(samples);
  // A weight of [classes, features], and a bias.
  const double features = head.parameter_bytes * replicas / sizeof(float) / classes - 1;
  const double rows = static_cast<double>(samples) * replicas;
  const auto gather = [&](double bytes) { return all_gather_seconds(machine.cluster, bytes, replicas, 1); };
  const auto reduce = [&](double bytes) { return all_reduce_time(machine.cluster, bytes, replicas, 1).seconds; };
  constexpr double kLabel = sizeof(std::int64_t), kNumber = sizeof(double);
  return {gather(rows * features * element) + gather(rows * kLabel) + reduce(2 * rows * kNumber) +
              reduce(3 * rows * kNumber),
          gather(rows * features * sizeof(float))};
}

std::vector<UnitCost> costs_of_rank(std::vector<UnitCost> costs, const Config& config, int replicas) {
  if (has_sharded_head(config, replicas)) costs.back().parameter_bytes /= replicas;
  return costs;
}

}  // namespace convoy
