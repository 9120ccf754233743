// SPDX-License-Identifier: Apache-2.0
#include "app/planning/count_work.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "app/bench/model_bytes.h"
#include "app/build/build_backend.h"
#include "app/build/build_model.h"
#include "layers/backend/observe/traffic_backend.h"
#include "layers/base/error.h"
#include "layers/base/rehearsal.h"
#include "parallel/schedule/parallel_options.h"

namespace convoy {

namespace {

constexpr std::int64_t kFewSamples = 8, kMoreSamples = 16;  // two points of each line

struct Counted {
  std::vector<CountedOperation> operations;
  std::vector<UnitInfo> units;
};

FusionRules rules_of(const Config& config) {
  return {compute_type(config.train.precision), config.device.deterministic};
}

// A part without a kernel of its own belongs to the operation before it; a sum of two gradients, and what comes first,
// to the one behind it.
std::vector<CountedOperation> with_parts(const std::vector<CountedOperation>& counted) {
  std::vector<CountedOperation> operations;
  double pending = 0;
  for (const CountedOperation& operation : counted) {
    if (operation.moved.nodes == 0) {
      const bool next = operations.empty() || operation.key.kind == TrafficKind::kJoins;
      (next ? pending : operations.back().moved.bytes) += operation.moved.bytes;
      continue;
    }
    operations.push_back(operation);
    operations.back().moved.bytes += std::exchange(pending, 0.0);
  }
  return operations;
}

Counted count_step(Config config, const Dataset& data, std::int64_t samples) {
  config.train.global_batch_size = samples;
  TrafficBackend backend(rules_of(config));
  Counted counted;
  counted.units = rehearse_step(config, data, backend);
  counted.operations = with_parts(backend.operations());
  return counted;
}

LinearCount line(double few, double more) {
  constexpr double kStep = kMoreSamples - kFewSamples;
  const double slope = (more - few) / kStep;
  return {few - slope * kFewSamples, slope};
}

OperationWork operation_work(const CountedOperation& few, const CountedOperation& more) {
  OperationWork work;
  work.kernels = static_cast<double>(few.moved.nodes);
  work.bytes = line(few.moved.bytes, more.moved.bytes);
  work.rows = line(few.gemm.rows, more.gemm.rows);
  work.columns = line(few.gemm.columns, more.gemm.columns);
  work.depth = line(few.gemm.depth, more.gemm.depth);
  work.groups = few.gemm.groups;
  work.splits_depth = few.gemm.weight_gradient;
  return work;
}

// The bytes that each unit keeps for backward, of one sample.
std::vector<double> cache_bytes(const Config& config, const Dataset& data, const std::vector<UnitInfo>& infos) {
  const Rehearsal rehearsal;
  TrafficBackend backend(rules_of(config));
  std::vector<Unit> units = build_units(config, data);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < units.size(); ++i) candidates.push_back(candidate(std::move(units[i]), infos, i));
  std::vector<double> bytes;
  for (const UnitCost& cost : measure_units(backend, std::move(candidates))) {
    bytes.push_back(cost.cache_bytes / kFewSamples);
  }
  return bytes;
}

}  // namespace

Config gpu_config(const Config& config, int element_bytes) {
  Config planned = config;
  if (element_bytes == 4) {
    if (dtype_size(compute_type(planned.train.precision)) != 4) planned.train.precision = Precision::kFp32;
  } else if (planned.train.precision != Precision::kFp16) {
    planned.train.precision = Precision::kBf16;
  }
  return planned;
}

ModelWork count_work(const Config& given, const Dataset& data) {
  Config config = given;
  config.parallel = ParallelOptions{};
  const Counted few = count_step(config, data, kFewSamples), more = count_step(config, data, kMoreSamples);
  if (few.operations.size() != more.operations.size()) {
    fail("the steps of {} and {} samples have {} and {} operations", kFewSamples, kMoreSamples, few.operations.size(),
         more.operations.size());
  }
  ModelWork work;
  const auto element = static_cast<double>(dtype_size(compute_type(config.train.precision)));
  const std::vector<double> caches = cache_bytes(config, data, few.units);
  for (std::size_t i = 0; i < few.units.size(); ++i) {
    const UnitInfo& info = few.units[i];
    UnitWork& unit = work.units.emplace_back();
    unit.name = info.name;
    unit.output_bytes = element * static_cast<double>(info.output.size()) / kFewSamples;
    unit.cache_bytes = caches[i];
    unit.parameter_bytes = info.frozen ? 0 : 4.0 * static_cast<double>(info.parameters());
  }
  // What is outside of all units (input, loss) counts with the unit before it, the first one if there is none.
  std::size_t at = 0;
  for (std::size_t i = 0; i < few.operations.size(); ++i) {
    const CountedOperation& operation = few.operations[i];
    if (operation.key.phase == "optimizer") {
      work.optimizer_bytes += operation.moved.bytes;
      work.optimizer_kernels += static_cast<double>(operation.moved.nodes);
      continue;
    }
    const auto named = std::find_if(work.units.begin(), work.units.end(),
                                    [&](const UnitWork& unit) { return unit.name == operation.key.unit; });
    if (named != work.units.end()) at = static_cast<std::size_t>(named - work.units.begin());
    UnitWork& unit = work.units[at];
    const bool weight = operation.gemm.weight_gradient || operation.key.kind == TrafficKind::kGradientCasts;
    std::vector<OperationWork>& list = operation.key.phase != "backward" ? unit.forward
                                       : weight                          ? unit.backward_weight
                                                                         : unit.backward_input;
    list.push_back(operation_work(operation, more.operations[i]));
  }
  return work;
}

}  // namespace convoy
