// SPDX-License-Identifier: Apache-2.0
#include "app/build/pipeline_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

constexpr const char* kStageState = "state of a stage";
constexpr int kShardTag = 0;

// What a slot has beside parameters: the average of the running statistics, or nothing.
Tensor statistics_of(const Run& run, const std::string& slot) {
  return slot == kAverageSlot ? run.average->statistics() : Tensor();
}

// Whether replicas have different parts of this slot.
bool is_sharded(const Run& run, const std::string& slot) { return run.optimizer->is_sharded() && slot != kAverageSlot; }

// Calls move(replica, its shard of `whole`) for all replicas but 0.
template <class Move>
void for_shards(Run& run, const Tensor& whole, const Move& move) {
  const std::vector<std::int64_t>& bounds = run.optimizer->shard_bounds();
  for (int replica = 1; replica < run.replicas->size(); ++replica) {
    const auto i = static_cast<std::size_t>(replica);
    if (bounds[i] < bounds[i + 1]) move(replica, whole.view(bounds[i], {bounds[i + 1] - bounds[i]}));
  }
}

Tensor whole_slot(Run& run) {
  Tensor whole = run.backend->tensor(run.model->parameters().learned_values().shape(), DType::kF32);
  run.backend->zero(whole);
  return whole;
}

// The whole slot on replica 0, from the shards of all; collective over the replicas.
Tensor gather_shards(Run& run, const Tensor& shard, const std::string& what) {
  if (run.replica() != 0) {
    if (shard.size() > 0) run.replicas->send(shard, 0, kShardTag, what)->wait();
    return {};
  }
  const Tensor whole = whole_slot(run);
  run.backend->run(ops::Cast{shard, run.optimizer->of_shard(whole)});
  for_shards(run, whole,
             [&](int replica, const Tensor& part) { run.replicas->receive(part, replica, kShardTag, what)->wait(); });
  return whole;
}

// The other way: the shards of all replicas, from a whole slot on replica 0.
void scatter_shards(Run& run, const Tensor& whole, const Tensor& shard, const std::string& what) {
  if (run.replica() != 0) {
    if (shard.size() > 0) run.replicas->receive(shard, 0, kShardTag, what)->wait();
    return;
  }
  run.backend->run(ops::Cast{run.optimizer->of_shard(whole), shard});
  for_shards(run, whole,
             [&](int replica, const Tensor& part) { run.replicas->send(part, replica, kShardTag, what)->wait(); });
}

// Which stage holds the tensor of that name.
std::map<std::string, int> stages_by_name(const Run& run) {
  std::map<std::string, int> stages;
  for (std::size_t v = 0; v < run.layout.partition.size(); ++v) {
    const UnitRange& range = run.layout.partition[v];
    for (int unit = range.first; unit < range.end; ++unit) {
      for (const TensorEntry& entry : run.model->units()[static_cast<std::size_t>(unit)].manifest) {
        stages[entry.name] = run.layout.schedule.stage_of(static_cast<int>(v));
      }
    }
  }
  return stages;
}

std::vector<HostTensor> of_stage(const std::vector<HostTensor>& tensors, const std::map<std::string, int>& stages,
                                 int stage) {
  std::vector<HostTensor> part;
  for (const HostTensor& tensor : tensors) {
    const auto found = stages.find(tensor.name);
    if (found != stages.end() && found->second == stage) part.push_back(tensor);
  }
  return part;
}

// The model's tensors, then those of all slots in the order of slots_of().
void send_part(Run& run, const StateTensors& part, int peer) {
  send_tensors(*run.stages, part.model, peer, kStageState);
  for (const auto& [name, flat] : slots_of(run)) {
    const auto slot = std::find_if(part.optimizer.begin(), part.optimizer.end(),
                                   [&, &name = name](const OptimizerSlot& one) { return one.first == name; });
    send_tensors(*run.stages, slot == part.optimizer.end() ? std::vector<HostTensor>() : slot->second, peer,
                 kStageState);
  }
}

StateTensors receive_part(Run& run, int peer) {
  StateTensors part;
  part.model = receive_tensors(*run.stages, peer, kStageState);
  for (const auto& [name, flat] : slots_of(run)) {
    std::vector<HostTensor> tensors = receive_tensors(*run.stages, peer, kStageState);
    if (!tensors.empty()) part.optimizer.emplace_back(name, std::move(tensors));
  }
  return part;
}

// What of the whole state is a stage's, its slots in the order of slots_of().
StateTensors part_of(Run& run, const StateTensors& state, const std::map<std::string, int>& stages, int stage) {
  StateTensors part{of_stage(state.model, stages, stage), {}};
  for (const auto& [slot, flat] : slots_of(run)) {
    for (const auto& [name, tensors] : state.optimizer) {
      if (name == slot) part.optimizer.emplace_back(name, of_stage(tensors, stages, stage));
    }
  }
  return part;
}

void import_part(Run& run, const StateTensors& part, const std::string& source, const std::string& skip) {
  ParameterStore& store = run.model->parameters();
  store.import_model(part.model, source, skip);
  for (const auto& [name, flat] : slots_of(run)) {
    for (const auto& [slot, tensors] : part.optimizer) {
      if (slot == name && !is_sharded(run, name)) {
        store.import_slot(tensors, flat, source, statistics_of(run, name));
      }
    }
  }
}

// The optimizer's slots that replica 0 has in `part`; without any, all replicas' are unchanged.
void scatter_sharded_slots(Run& run, const StateTensors& part, const std::string& source) {
  if (!run.optimizer->is_sharded()) return;
  const std::string come = run.replicas->broadcast(part.optimizer.empty() ? "" : "slots", 0, "optimizer state");
  if (come.empty()) return;
  for (const auto& [name, shard] : run.optimizer->slots()) {
    Tensor whole;
    if (run.replica() == 0) whole = whole_slot(run);
    for (const auto& [slot, tensors] : part.optimizer) {
      if (slot == name) run.model->parameters().import_slot(tensors, whole, source);
    }
    scatter_shards(run, whole, shard, "optimizer " + name);
  }
}

// From replica 0 of this stage to its other replicas.
void broadcast_part(Run& run) {
  Communicator& replicas = *run.replicas;
  ParameterStore& store = run.model->parameters();
  const auto broadcast = [&](const Tensor& tensor, const std::string& what) {
    if (tensor.size() > 0) replicas.broadcast(tensor, 0, what)->wait();
  };
  const std::int64_t sharded = store.sharded_elements();
  const auto replicated = [sharded](const Tensor& flat) { return flat.view(sharded, {flat.size() - sharded}); };
  broadcast(replicated(store.values()), "parameters");
  broadcast(store.running(), "running statistics");
  for (const auto& [name, slot] : slots_of(run)) {
    if (!is_sharded(run, name)) broadcast(replicated(slot), "optimizer " + name);
    if (const Tensor statistics = statistics_of(run, name)) broadcast(statistics, "average of running statistics");
  }
  std::vector<std::int64_t> counts = store.batch_counts();
  if (!counts.empty()) {
    const Tensor tensor = run.backend->tensor({static_cast<std::int64_t>(counts.size())}, DType::kI64);
    run.backend->copy_from_host(counts.data(), tensor);
    broadcast(tensor, "batch counts");
    run.backend->copy_to_host(tensor, counts.data());
    store.set_batch_counts(counts);
  }
  store.refresh_compute();
}

}  // namespace

Optimizer::Slots slots_of(const Run& run) {
  Optimizer::Slots slots = run.optimizer->slots();
  if (run.average) slots.emplace_back(kAverageSlot, run.average->weights());
  return slots;
}

StateTensors gather_state(Run& run, StateTensors reuse) {
  StateTensors state;
  const bool writes = run.replica() == 0;
  if (!writes && !run.optimizer->is_sharded()) return state;
  const ParameterStore& store = run.model->parameters();
  if (writes) state.model = store.export_model(std::move(reuse.model));
  reuse.optimizer.resize(slots_of(run).size());
  for (const auto& [name, flat] : slots_of(run)) {
    const Tensor whole = is_sharded(run, name) ? gather_shards(run, flat, "optimizer " + name) : flat;
    if (!writes) continue;
    auto& earlier = reuse.optimizer[state.optimizer.size()].second;
    state.optimizer.emplace_back(name, store.export_slot(whole, std::move(earlier), statistics_of(run, name)));
  }
  if (!writes || !run.stages) return state;
  if (!run.is_root()) {
    send_part(run, state, 0);
    return state;
  }
  for (int stage = 1; stage < run.stages->size(); ++stage) {
    StateTensors part = receive_part(run, stage);
    std::move(part.model.begin(), part.model.end(), std::back_inserter(state.model));
    for (auto& [name, tensors] : part.optimizer) {
      for (auto& [slot, whole] : state.optimizer) {
        if (slot == name) std::move(tensors.begin(), tensors.end(), std::back_inserter(whole));
      }
    }
  }
  return state;
}

void scatter_state(Run& run, const StateTensors& state, const std::string& source, const std::string& skip) {
  StateTensors own;  // of this stage
  const StateTensors* part = &own;
  if (run.replica() == 0) {
    if (!run.stages) {
      part = &state;
    } else if (run.is_root()) {
      const std::map<std::string, int> stages = stages_by_name(run);
      for (int stage = 1; stage < run.stages->size(); ++stage) {
        send_part(run, part_of(run, state, stages, stage), stage);
      }
      own = part_of(run, state, stages, 0);
    } else {
      own = receive_part(run, 0);
    }
    import_part(run, *part, source, skip);
  }
  broadcast_part(run);
  scatter_sharded_slots(run, *part, source);
}

}  // namespace convoy
