// SPDX-License-Identifier: Apache-2.0
#include "app/build/memory_prediction.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "app/build/build_backend.h"
#include "app/build/build_model.h"
#include "app/build/build_run.h"
#include "app/build/rehearsed_rank.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

constexpr double kMib = 1 << 20;
constexpr int kSteps = 3;           // after two the pool has every block that steps need
constexpr int kWrittenCopies = 2;   // of the state: as tensors, and as the image of the file
constexpr int kCopiesInFlight = 3;  // one more while the checkpoint before is still being written
constexpr int kShardCopies = 3;     // of a sharded head: a rank's own rows, and received ones as bytes and as floats

double tensor_bytes(const std::vector<TensorEntry>& entries) {
  double bytes = 0;
  for (const TensorEntry& entry : entries) {
    bytes += static_cast<double>(entry.shape.size()) * static_cast<double>(dtype_size(entry.dtype));
  }
  return bytes;
}

// The model's tensors, and a tensor as large as each parameter for each slot.
double state_bytes(const std::vector<UnitInfo>& units, double slots) {
  double bytes = 0;
  for (const UnitInfo& unit : units) {
    bytes += tensor_bytes(unit.manifest) + slots * 4.0 * static_cast<double>(unit.parameters());
  }
  return bytes;
}

// The largest shard of a sharded parameter, whose tensors are taken out of the units.
double take_sharded(const ParameterStore& store, std::vector<UnitInfo>& units) {
  double largest = 0;
  for (const auto& parameter : store.parameters()) {
    if (!parameter->shard) continue;
    largest = std::max(largest, sizeof(float) * static_cast<double>(parameter->layout->elements()));
    for (UnitInfo& unit : units) {
      std::erase_if(unit.manifest, [&](const TensorEntry& entry) { return entry.name == parameter->name; });
    }
  }
  return largest;
}

double checkpoint_bytes(const MemoryRequest& request, Model& model) {
  if (request.purpose != RunPurpose::kTraining) return 0;
  const Mesh& mesh = request.layout.mesh;
  const double slots = request.config.slots();
  std::vector<UnitInfo> units = model.units();
  const double shard = take_sharded(model.parameters(), units);
  if (request.rank == 0) {
    // The image of a file with a sharded head is in another file.
    const int copies = (request.config.checkpoint.async ? kCopiesInFlight : kWrittenCopies) - (shard > 0 ? 1 : 0);
    return state_bytes(units, slots) * copies + kShardCopies * shard;
  }
  if (mesh.replica(request.rank) != 0) return kShardCopies * shard;
  std::vector<UnitInfo> own;
  for (const UnitRange& range :
       stage_chunks(request.layout.schedule, request.layout.partition, mesh.stage(request.rank))) {
    own.insert(own.end(), units.begin() + range.first, units.begin() + range.end);
  }
  return state_bytes(own, slots);
}

// MPI adds gradients up in a buffer of its own: scatter's root all of them, replicas on several nodes a bucket.
double communication_bytes(const MemoryRequest& r, double gradients) {
  if (r.device.on_gpu() || r.layout.mesh.replicas() == 1) return 0;
  if (r.config.parallel.mode == ParallelMode::kScatter) return r.rank == 0 ? gradients : 0;
  return r.shares_gradients ? 0 : std::min(gradients, r.config.parallel.bucket_mb * kMib);
}

// Freed blocks of this size go back to the C library and not to the system (mallopt(3): DEFAULT_MMAP_THRESHOLD_MAX).
double start_bytes(double largest_parameter) { return largest_parameter < 32 * kMib ? largest_parameter : 0; }

double start_bytes(const ParameterStore& store) {
  double largest = 0;
  for (const auto& parameter : store.parameters()) {
    largest = std::max(largest, sizeof(float) * static_cast<double>(parameter->layout->elements()));
  }
  return start_bytes(largest);
}

double loaders_bytes(const MemoryRequest& r) {
  const int stage = r.layout.mesh.stage(r.rank), replica = r.layout.mesh.replica(r.rank);
  const auto bytes = [&](const DataShape& data, bool evaluation) {
    const LoaderOptions options =
        loader_options(r.config, r.layout, replica, stage, r.device.loader_threads, evaluation);
    return static_cast<double>(loader_bytes(data.sample, data.dtype, data.target_size, options));
  };
  double sum = r.purpose == RunPurpose::kEvaluation ? 0 : bytes(r.train, false);
  if (r.validation && r.purpose != RunPurpose::kTiming) sum += bytes(*r.validation, true);
  return sum;
}

// A block for the flat gradients that belongs to no pool.
struct SharedBlock {
  Block block{};
  Tensor tensor(const Shape& shape) {
    block.data = this;
    block.bytes = static_cast<std::size_t>(shape.size()) * sizeof(float);
    block.references = 2;  // one of them here: it is never given back
    return {&block, shape, DType::kF32};
  }
};

}  // namespace

DataShape data_shape(const Config& config, const Dataset& data) {
  return {data.sample_shape(), data.input_dtype(), data.target_size(), output_size(config, data)};
}

MemoryPrediction predict_memory(const MemoryRequest& request) {
  const Config& c = request.config;
  const Mesh& mesh = request.layout.mesh;
  const bool scatters = c.parallel.mode == ParallelMode::kScatter;
  MemoryPrediction prediction;

  const Rehearsal rehearsal;
  SharedBlock shared;
  const auto backend = rehearsal_backend(c, request.device);
  RehearsedRank rank(request, *backend, false);
  ParameterStore& store = rank.model().parameters();
  if (request.shares_gradients && !scatters && mesh.replicas() > 1 && store.learned_values().size() > 0) {
    store.place_gradients(shared.tensor(store.learned_values().shape()));
    prediction.gradients = static_cast<double>(store.gradients().bytes());
  }
  const auto gradients = static_cast<double>(store.gradients().bytes());
  const auto held = static_cast<double>(backend->pool().bytes_held());
  const Optimizer& optimizer = rank.make_optimizer();
  if (const auto slots = static_cast<double>(optimizer.slots().size()); slots > 0) {
    const bool averages = c.train.ema_decay > 0 && request.purpose != RunPurpose::kEvaluation;
    // Beside the slots, which are as long unless they are sharded: values, gradients.
    const double others = optimizer.is_sharded() ? 0 : (prediction.gradients > 0 ? 1 : 2) + (averages ? 1 : 0);
    const double added =
        static_cast<double>(backend->pool().bytes_held()) - held - static_cast<double>(optimizer.no_decay().bytes());
    const auto slot = static_cast<double>(optimizer.slots().front().second.bytes());
    prediction.untouched = (slots + others) * (added / slots - slot);
  }
  rank.make_runner();
  if (request.purpose != RunPurpose::kEvaluation) {
    for (int step = 0; step < kSteps; ++step) rank.train_step();
  }
  if (request.purpose != RunPurpose::kTiming && request.validation) {
    rank.evaluate();
    if (request.purpose == RunPurpose::kTraining) rank.train_step();
  }
  prediction.tensors = static_cast<double>(backend->pool().peak_bytes());
  prediction.communication = communication_bytes(request, gradients);
  prediction.start = start_bytes(store);
  prediction.loader = loaders_bytes(request);
  prediction.checkpoint = checkpoint_bytes(request, rank.model());
  // Replica 0 puts the shards of a slot together before it copies them to the host.
  const bool gathers = optimizer.is_sharded() && mesh.replica(request.rank) == 0;
  if (gathers && request.purpose == RunPurpose::kTraining) prediction.checkpoint += gradients;
  return prediction;
}

MemoryPrediction predict_measuring(const MemoryRequest& request) {
  const Rehearsal rehearsal;
  const auto backend = rehearsal_backend(request.config, request.device);
  const std::int64_t samples = request.layout.microbatch(request.config.train.global_batch_size);
  const Shape input = batch_shape(request.train.sample, samples);
  const auto infos = describe_units(*backend, build_units(request.config, request.train.outputs), input);
  std::vector<Unit> units = build_units(request.config, request.train.outputs);
  std::vector<Candidate> candidates;
  double largest = 0;
  for (auto i = static_cast<std::size_t>(request.rank); i < units.size();
       i += static_cast<std::size_t>(request.layout.mesh.ranks())) {
    candidates.push_back(candidate(std::move(units[i]), infos, i));
    for (const TensorEntry& entry : infos[i].manifest) largest = std::max(largest, tensor_bytes({entry}));
  }
  static_cast<void>(measure_units(*backend, std::move(candidates)));
  MemoryPrediction prediction;
  prediction.tensors = static_cast<double>(backend->pool().peak_bytes());
  prediction.start = start_bytes(largest);
  return prediction;
}

}  // namespace convoy
