// SPDX-License-Identifier: Apache-2.0
//
// What each rank computes on: the CPU, or which GPU. Decided once, from the config, the GPUs that the rank sees and its
// place among the ranks of its node.
#pragma once

#include <string>
#include <vector>

#include "app/config/config.h"
#include "parallel/comm/communicator.h"
#include "parallel/world/world.h"

namespace convoy {

/// A rank among those of its node.
struct RankPlace {
  int local_rank = 0, local_size = 1;
  int thread_share = 1;  ///< of the node's cores
  std::string host;
};
[[nodiscard]] RankPlace rank_place(const World& world);

struct DeviceChoice {
  int threads = 1;  ///< that compute, on the CPU
  int loader_threads = 1;
  int gpu = -1;  ///< among those that this process sees; -1: the CPU computes
  std::string gpu_name, gpu_uuid;
  std::string no_gpu;       ///< why "auto" has found none, in a build that could use one
  double memory_bytes = 0;  ///< for this rank: its share of its node's memory, or of its GPU's

  [[nodiscard]] bool on_gpu() const { return gpu >= 0; }
};

/// The GPU for a rank that sees `gpus` of them (at least one). One rank to a GPU, in order; a rank that sees one GPU
/// only has been given it, and check_devices() finds whether others were, too. share: ranks take turns on GPUs. Throws
/// a usage Error when there are too few. Pure.
[[nodiscard]] int choose_gpu(const RankPlace& place, int gpus, bool share);

/// data.loader_threads, or this rank's cores that do not compute, at least one. Pure.
[[nodiscard]] int choose_loader_threads(const Config& config, const RankPlace& place, const DeviceChoice& device);

/// Throws a usage Error when the config requires a GPU, by device.kind or by train.precision, and there is none.
[[nodiscard]] DeviceChoice choose_device(const Config& config, const RankPlace& place);

/// A rank's choice as the other ranks see it.
struct RankDevice {
  int gpu = -1;
  std::string gpu_uuid, host;
};
/// What is wrong with the choices of all ranks together; empty when nothing is. Pure.
[[nodiscard]] std::string device_problem(const std::vector<RankDevice>& ranks, bool share_gpu);

/// Throws that as a collective usage Error. Every rank calls it.
void check_devices(Communicator& all, const Config& config, const DeviceChoice& device, const std::string& host);

}  // namespace convoy
