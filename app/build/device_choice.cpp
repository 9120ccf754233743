// SPDX-License-Identifier: Apache-2.0
#include "app/build/device_choice.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>

#include "layers/backend/cuda_devices.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/random.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

constexpr int kMaxLoaderThreads = 64;  // unless the user says more
constexpr double kTensorShare = 0.9;   // of a GPU's memory; libraries and their connections take the rest

double node_memory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

int ranks_on_gpu(const RankPlace& place, int gpu, int gpus) {
  int ranks = 0;
  for (int rank = 0; rank < place.local_size; ++rank) ranks += rank % gpus == gpu ? 1 : 0;
  return ranks;
}

std::string packed(const RankDevice& rank) {
  return fmt::format("{} {} {}", rank.gpu, rank.gpu_uuid.empty() ? "-" : rank.gpu_uuid, rank.host);
}

RankDevice unpacked(const std::string& text) {
  RankDevice rank;
  std::istringstream(text) >> rank.gpu >> rank.gpu_uuid >> rank.host;
  return rank;
}

}  // namespace

RankPlace rank_place(const World& world) {
  return {world.local_rank(), world.local_size(), world.thread_share(), world.host()};
}

int choose_gpu(const RankPlace& place, int gpus, bool share) {
  if (share) return place.local_rank % gpus;
  if (place.local_rank < gpus) return place.local_rank;
  if (gpus == 1) return 0;
  fail_usage("{} ranks on host {} and {} GPUs (start as many ranks as GPUs, or set device.share_gpu = true)",
             place.local_size, place.host, gpus);
}

int choose_loader_threads(const Config& config, const RankPlace& place, const DeviceChoice& device) {
  if (config.data.loader_threads > 0) return static_cast<int>(config.data.loader_threads);
  const int computing = device.on_gpu() ? 1 : device.threads;  // a thread that feeds the GPU
  return std::clamp(place.thread_share - computing, 1, kMaxLoaderThreads);
}

namespace {

DeviceChoice choose_computing(const Config& config, const RankPlace& place) {
  const DeviceOptions& wanted = config.device;
  DeviceChoice choice;
  choice.threads = wanted.threads > 0 ? static_cast<int>(wanted.threads) : place.thread_share;
  choice.memory_bytes = node_memory() / place.local_size;
  if (wanted.kind == DeviceKind::kCpu) return choice;

  const CudaReport report = cuda_report();
  if (!report.devices.empty()) {
    const int gpus = static_cast<int>(report.devices.size());
    choice.gpu = choose_gpu(place, gpus, wanted.share_gpu);
    const CudaDevice& device = report.devices[static_cast<std::size_t>(choice.gpu)];
    choice.gpu_name = device.name;
    choice.gpu_uuid = device.uuid;
    const int sharers = wanted.share_gpu ? ranks_on_gpu(place, choice.gpu, gpus) : 1;
    choice.memory_bytes = kTensorShare * static_cast<double>(device.memory_bytes) / sharers;
    return choice;
  }
  const Precision precision = config.train.precision;
  if (wanted.kind == DeviceKind::kCuda) {
    fail_option("device.kind", "\"cuda\", but CUDA finds no GPU on {}: {} ({}; or compute on the CPU with \"cpu\")",
                place.host, report.problem, report.remedy);
  }
  if (precision == Precision::kTf32 || precision == Precision::kFp16) {
    fail_option("train.precision", "\"{}\" needs a GPU, and CUDA finds none on {}: {} ({}; on the CPU: fp32 or bf16)",
                to_string(precision), place.host, report.problem, report.remedy);
  }
  if (kCudaBuilt) choice.no_gpu = report.problem;
  return choice;
}

}  // namespace

DeviceChoice choose_device(const Config& config, const RankPlace& place) {
  DeviceChoice choice = choose_computing(config, place);
  choice.loader_threads = choose_loader_threads(config, place, choice);
  return choice;
}

std::string device_problem(const std::vector<RankDevice>& ranks, bool share_gpu) {
  const auto kind = [](const RankDevice& rank) { return rank.gpu >= 0 ? "a GPU" : "the CPU"; };
  std::map<std::string, std::size_t> first_rank;  // by GPU
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankDevice& rank = ranks[i];
    if ((rank.gpu >= 0) != (ranks[0].gpu >= 0)) {
      return fmt::format(
          "device.kind: rank {} on host {} has {} to compute on and rank 0 on host {} has {} (start on "
          "nodes that are alike, or set device.kind = \"cpu\")",
          i, rank.host, kind(rank), ranks[0].host, kind(ranks[0]));
    }
    if (rank.gpu < 0 || share_gpu) continue;
    const auto [found, fresh] = first_rank.emplace(rank.gpu_uuid, i);
    if (fresh) continue;
    return fmt::format(
        "ranks {} and {} share GPU {} of host {} (start one rank per GPU, or set device.share_gpu = true)",
        found->second, i, rank.gpu, rank.host);
  }
  return "";
}

namespace {

// Whether device_problem() will find nothing: all on CPUs, or each on a GPU of its own.
bool devices_suit(Communicator& all, const Config& config, const DeviceChoice& device) {
  const double on_gpu = device.on_gpu() ? 1 : 0;
  if (!all_equal(all, std::span(&on_gpu, 1), "devices")) return false;
  if (!device.on_gpu() || config.device.share_gpu) return true;
  std::vector<double> digests(static_cast<std::size_t>(all.size()));  // of the GPU of each rank
  digests[static_cast<std::size_t>(all.rank())] = digest_number(random_key(0, device.gpu_uuid));
  all.all_reduce(digests, ReduceOp::kSum, "devices");
  std::sort(digests.begin(), digests.end());
  return std::adjacent_find(digests.begin(), digests.end()) == digests.end();
}

}  // namespace

void check_devices(Communicator& all, const Config& config, const DeviceChoice& device, const std::string& host) {
  if (devices_suit(all, config, device)) return;
  std::vector<RankDevice> ranks;
  for (const std::string& text : all.all_gather(packed({device.gpu, device.gpu_uuid, host}), "devices")) {
    ranks.push_back(unpacked(text));
  }
  const std::string problem = device_problem(ranks, config.device.share_gpu);
  if (problem.empty()) return;
  Error error(problem, ExitCode::kUsage);
  error.set_collective();
  throw error;
}

}  // namespace convoy
