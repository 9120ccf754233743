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

// The optimizer's slots, and the average.
Optimizer::Slots slots_of(const Run& run) {
  Optimizer::Slots slots = run.optimizer->slots();
  if (run.average) slots.emplace_back(kAverageSlot, run.average->tensor());
  return slots;
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
  std::vector<HostTensor> slots;
  for (const auto& [name, tensors] : part.optimizer) slots.insert(slots.end(), tensors.begin(), tensors.end());
  send_tensors(*run.stages, slots, peer, kStageState);
}

StateTensors receive_part(Run& run, int peer) {
  StateTensors part;
  part.model = receive_tensors(*run.stages, peer, kStageState);
  std::vector<HostTensor> tensors = receive_tensors(*run.stages, peer, kStageState);
  const Optimizer::Slots slots = slots_of(run);
  auto next = tensors.begin();
  const auto each = static_cast<std::ptrdiff_t>(tensors.size() / slots.size());
  for (std::size_t i = 0; i < slots.size() && !tensors.empty(); ++i, next += each) {
    part.optimizer.emplace_back(slots[i].first,
                                std::vector<HostTensor>(std::move_iterator(next), std::move_iterator(next + each)));
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
      if (slot == name) store.import_slot(tensors, flat, source);
    }
  }
}

// From replica 0 of this stage to its other replicas.
void broadcast_part(Run& run) {
  Communicator& replicas = *run.replicas;
  ParameterStore& store = run.model->parameters();
  const auto broadcast = [&](const Tensor& tensor, const std::string& what) {
    if (tensor.size() > 0) replicas.broadcast(tensor, 0, what)->wait();
  };
  broadcast(store.values(), "parameters");
  broadcast(store.running(), "running statistics");
  for (const auto& [name, slot] : slots_of(run)) broadcast(slot, "optimizer " + name);
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

StateTensors gather_state(Run& run, StateTensors reuse) {
  StateTensors state;
  if (run.replica() != 0) return state;
  const ParameterStore& store = run.model->parameters();
  state.model = store.export_model(std::move(reuse.model));
  reuse.optimizer.resize(slots_of(run).size());
  for (const auto& [name, flat] : slots_of(run)) {
    auto& earlier = reuse.optimizer[state.optimizer.size()].second;
    state.optimizer.emplace_back(name, store.export_slot(flat, std::move(earlier)));
  }
  if (!run.stages) return state;
  if (!run.is_root()) {
    send_part(run, state, 0);
    return state;
  }
  for (int stage = 1; stage < run.stages->size(); ++stage) {
    StateTensors part = receive_part(run, stage);
    std::move(part.model.begin(), part.model.end(), std::back_inserter(state.model));
    for (std::size_t i = 0; i < part.optimizer.size(); ++i) {
      std::move(part.optimizer[i].second.begin(), part.optimizer[i].second.end(),
                std::back_inserter(state.optimizer[i].second));
    }
  }
  return state;
}

void scatter_state(Run& run, const StateTensors& state, const std::string& source, const std::string& skip) {
  if (run.replica() == 0) {
    if (!run.stages) {
      import_part(run, state, source, skip);
    } else if (run.is_root()) {
      const std::map<std::string, int> stages = stages_by_name(run);
      for (int stage = 1; stage < run.stages->size(); ++stage) {
        send_part(run, part_of(run, state, stages, stage), stage);
      }
      import_part(run, part_of(run, state, stages, 0), source, skip);
    } else {
      import_part(run, receive_part(run, 0), source, skip);
    }
  }
  broadcast_part(run);
}

}  // namespace convoy
