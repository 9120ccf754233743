// SPDX-License-Identifier: Apache-2.0
#include "app/planning/stated_machine.h"

#include <utility>

namespace convoy {

MachineModel stated_machine(const MachineFigures& figures, std::shared_ptr<const ModelWork> work) {
  MachineModel machine;
  machine.name = figures.name;
  machine.gpu = {.flops = figures.flops,
                 .flops_efficiency = figures.flops_efficiency,
                 .memory_bytes_per_second = figures.memory_bytes_per_second,
                 .memory_efficiency = figures.memory_efficiency,
                 .kernel_seconds = figures.kernel_seconds,
                 .multiprocessors = figures.multiprocessors};
  machine.cluster = {.ranks_per_node = static_cast<int>(figures.ranks_per_node),
                     .node = {figures.node_latency, figures.node_bandwidth},
                     .network = {figures.network_latency, figures.network_bandwidth},
                     .node_shared = figures.node_shared_bandwidth,
                     .cards = figures.network_cards,
                     .in_network = figures.network_reduces};
  machine.optimizer_seconds = optimizer_seconds_per_byte(*work, machine.gpu);
  machine.memory_bytes = 1e9 * figures.memory_gb;
  machine.overlaps = true;
  machine.contention = figures.contention;
  machine.step_seconds = figures.step_seconds;
  machine.jitter = figures.jitter;
  machine.jitter_distribution = figures.jitter_distribution;
  machine.input_samples_per_second = figures.input_samples_per_second;
  machine.job = {.startup_seconds = figures.startup_seconds,
                 .checkpoint_bytes_per_second = figures.checkpoint_bytes_per_second,
                 .gpu_watts = figures.gpu_watts,
                 .node_watts = figures.node_watts};
  machine.work = std::move(work);
  return machine;
}

}  // namespace convoy
