// SPDX-License-Identifier: Apache-2.0
#include "app/build/memory_check.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/build/memory_prediction.h"
#include "app/build/read_config.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"

namespace convoy {

namespace {

using Json = nlohmann::json;

constexpr double kThreadBytes = 128 << 10;  // resident: the touched part of a thread's stack and what it allocates
constexpr double kStackBytes = 8 << 20;     // virtual, of a thread
constexpr int kTries = 12;                  // halvings of a value that would fit
constexpr std::int64_t kMinImageSize = 32;

std::string pack_memory(const RankMemory& rank) {
  Json limits = Json::array();
  for (const HostMemoryLimit& limit : rank.limits) limits.push_back({limit.name, limit.key, limit.free});
  return Json({rank.host, rank.resident, rank.host_growth, rank.device_growth, limits, rank.gpu, rank.gpu_bytes})
      .dump();
}

RankMemory unpack_memory(const std::string& text) {
  const Json json = Json::parse(text);
  RankMemory rank{json[0], json[1], json[2], json[3], {}, json[5], json[6]};
  for (const Json& limit : json[4]) rank.limits.push_back({limit[0], limit[1], limit[2]});
  return rank;
}

int threads_to_come(const MemoryRequest& request) {
  return request.device.threads - 1 + request.device.loader_threads * (request.validation ? 2 : 1);
}

// This rank, once it has rehearsed. The limits of virtual memory have room for the stacks of threads.
RankMemory own_memory(const MemoryRequest& request, const MemoryPrediction& prediction, const std::string& host) {
  malloc_trim(0);  // what the rehearsal has freed
  RankMemory rank;
  rank.host = host;
  rank.resident = process_memory().resident;
  rank.limits = memory_limits();
  const int threads = threads_to_come(request);
  for (HostMemoryLimit& limit : rank.limits) {
    if (limit.key.empty()) limit.free -= threads * kStackBytes;
  }
  rank.host_growth = prediction.host() + threads * kThreadBytes;
  if (!request.device.on_gpu()) {
    rank.host_growth += prediction.tensors - prediction.untouched;
    return rank;
  }
  rank.gpu = fmt::format("GPU {}", request.device.gpu_uuid);
  rank.gpu_bytes = request.device.memory_bytes;
  rank.device_growth = prediction.tensors;
  return rank;
}

// What a rank needs when its config, the number of its microbatches or the size of its images is another.
double peak_with(const MemoryRequest& request, const TightestLimit& limit, const RankMemory& rank,
                 const std::function<void(Config&, DataShape&)>& change) {
  Config config = request.config;
  DataShape train = request.train;
  std::optional<DataShape> validation = request.validation;
  change(config, train);
  if (validation) change(config, *validation);
  Layout layout = plan_layout(config, request.layout.mesh.ranks());
  layout.partition = request.layout.partition;
  const MemoryRequest changed{config,     layout,          limit.rank,     train,
                              validation, request.purpose, request.device, request.shares_gradients};
  const MemoryPrediction p = predict_memory(changed);
  if (!rank.gpu.empty()) return p.tensors;
  return rank.resident + p.tensors - p.untouched + p.host() + threads_to_come(request) * kThreadBytes;
}

struct Remedies {
  const MemoryRequest& request;
  const TightestLimit& limit;
  const RankMemory& rank;
  std::vector<std::string> texts{};

  [[nodiscard]] double allowed() const { return kWarnedShare * limit.bytes / limit.ranks; }

  // Whether it fits so; one that does is noted. One that does not suit the config does not fit.
  bool fits(const std::string& setting, const std::function<void(Config&, DataShape&)>& change) {
    try {
      const double peak = peak_with(request, limit, rank, change);
      if (peak > allowed()) return false;
      texts.push_back(fmt::format("{} needs {}", setting, format_memory(peak)));
      return true;
    } catch (const Error&) {  // a batch that cannot be divided so, images too small for the network
      return false;
    }
  }

  // Tries values until one fits. next gives 0 at the end.
  void look_for(const std::string& key, const std::function<std::int64_t(int)>& next,
                const std::function<void(Config&, DataShape&, std::int64_t)>& change) {
    for (int i = 1; i <= kTries; ++i) {
      const std::int64_t value = next(i);
      if (value <= 0) return;
      const auto set = [&](Config& config, DataShape& data) { change(config, data, value); };
      if (fits(fmt::format("{} = {}", key, value), set)) return;
    }
  }
};

// Values that would fit, each by itself: "parallel.microbatches = 4 needs 3.1 GiB, ...".
std::string remedies(const MemoryRequest& request, const TightestLimit& limit, const RankMemory& rank) {
  Remedies found{request, limit, rank};
  const Config& c = request.config;
  if (!c.model.recompute.blocks) {
    found.fits("model.recompute = \"blocks\"", [](Config& config, DataShape&) { config.model.recompute = {true, {}}; });
  }
  if (c.parallel.mode == ParallelMode::kData || c.parallel.mode == ParallelMode::kPipeline) {
    const std::int64_t most = c.train.global_batch_size / request.layout.mesh.replicas();
    found.look_for(
        "parallel.microbatches",
        [&](int i) { return (c.parallel.microbatches << i) <= most ? c.parallel.microbatches << i : 0; },
        [](Config& config, DataShape&, std::int64_t value) { config.parallel.microbatches = value; });
  }
  found.look_for(
      "train.global_batch_size", [&](int i) { return c.train.global_batch_size >> i; },
      [](Config& config, DataShape&, std::int64_t value) { config.train.global_batch_size = value; });
  const Shape& sample = request.train.sample;
  const bool resizes = c.data.kind == "image_folder" || (c.data.kind == "synthetic" && sample.rank() == 3);
  if (resizes && c.data.train_sizes.empty()) {
    found.look_for(
        "data.image_size",
        [&](int i) { return sample[1] - 32 * i >= kMinImageSize ? (sample[1] - 32 * i) / 32 * 32 : 0; },
        [](Config&, DataShape& data, std::int64_t value) {
          data.sample = {data.sample[0], value, value};
        });
  }
  if (found.texts.empty())
    return "more memory, or more ranks: parallel.mode = \"pipeline\" divides the model into stages";
  return fmt::format("{}", fmt::join(found.texts, ", "));
}

TightestLimit gathered_limit(const RankMemory& own, Communicator& all, std::vector<RankMemory>& ranks) {
  for (const std::string& text : all.all_gather(pack_memory(own), "memory")) ranks.push_back(unpack_memory(text));
  return tightest_limit(ranks);
}

std::string need(const TightestLimit& limit, const RankMemory& rank, const char* what) {
  const std::string who = limit.ranks == 1
                              ? fmt::format("rank {} on host {}", limit.rank, limit.host)
                              : fmt::format("{} on host {}, of them rank {} {},", counted(limit.ranks, "rank"),
                                            limit.host, limit.rank, format_memory(rank.peak()));
  return fmt::format("memory: {} {} {}{}, which is more than {}: {}", who, limit.ranks == 1 ? "needs" : "need",
                     format_memory(limit.needed), what, limit.name, format_memory(limit.bytes));
}

[[noreturn]] void refuse(const std::string& text) {
  Error error(text, ExitCode::kUsage);
  error.set_collective();
  throw error;
}

constexpr const char* kAnyway = "run.allow_over_memory = true trains regardless";

}  // namespace

std::string format_memory(double bytes) {
  const double mib = std::max(0.0, bytes) / (1 << 20);
  if (mib < 1000) return fmt::format("{:.0f} MiB", mib);
  return mib < 100 * 1024 ? fmt::format("{:.1f} GiB", mib / 1024) : fmt::format("{:.0f} GiB", mib / 1024);
}

TightestLimit tightest_limit(const std::vector<RankMemory>& ranks) {
  std::map<std::string, TightestLimit> limits;
  const auto add = [&](int index, const std::string& key, const std::string& name, double needed, double bytes) {
    const RankMemory& rank = ranks[static_cast<std::size_t>(index)];
    TightestLimit& limit = limits.try_emplace(key, TightestLimit{name, rank.host, 0, index, 0, bytes}).first->second;
    limit.bytes = std::min(limit.bytes, bytes);
    ++limit.ranks;
    limit.needed += needed;
    if (rank.peak() > ranks[static_cast<std::size_t>(limit.rank)].peak()) limit.rank = index;
  };
  // Of a shared limit: what is free, and what its ranks hold already.
  std::map<std::string, double> held;
  for (const RankMemory& rank : ranks) {
    for (const HostMemoryLimit& limit : rank.limits) held[rank.host + "\n" + limit.key] += rank.resident;
  }
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    const RankMemory& rank = ranks[static_cast<std::size_t>(i)];
    for (const HostMemoryLimit& limit : rank.limits) {
      const bool shared = !limit.key.empty();
      const std::string key = shared ? rank.host + "\n" + limit.key : fmt::format("{}\n{}", i, limit.name);
      const double own = shared ? held[key] : rank.resident;
      add(i, key, limit.name, rank.resident + rank.host_growth, limit.free + own);
    }
    if (rank.gpu.empty()) continue;
    add(i, fmt::format("{}\n{}", i, rank.gpu), "its share of the memory of its GPU", rank.device_growth,
        rank.gpu_bytes);
  }
  const auto tightest = std::max_element(
      limits.begin(), limits.end(), [](const auto& a, const auto& b) { return a.second.share() < b.second.share(); });
  return tightest == limits.end() ? TightestLimit() : tightest->second;
}

MemoryReport check_memory(const MemoryRequest& request, Communicator& all, const std::string& host, double measured) {
  MemoryPrediction prediction;
  agree(
      all, [&] { add_places(request.config, [&] { prediction = predict_memory(request); }); }, "predicting the memory");
  std::vector<RankMemory> ranks;
  RankMemory own = own_memory(request, prediction, host);
  own.host_growth = std::max(own.host_growth, measured - own.resident);
  const TightestLimit limit = gathered_limit(own, all, ranks);
  MemoryReport report;
  report.backend_bytes = prediction.tensors;
  report.peak_bytes = own.peak();
  // A sum over replicas maps the gradients of the others: seen in each process, but there once.
  if (own.gpu.empty() && prediction.gradients > 0) {
    const double replicas = request.layout.mesh.replicas();
    report.peak_bytes += prediction.gradients * (replicas - 1) / replicas;
  }
  double largest = 0;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.peak());
  report.line = fmt::format("predicted peak {}", format_memory(largest));
  if (limit.ranks == 0) return report;
  report.line += fmt::format(" of {} a rank", format_memory(limit.bytes / limit.ranks));
  if (limit.share() <= kWarnedShare) return report;
  const RankMemory& worst = ranks[static_cast<std::size_t>(limit.rank)];
  const std::string advice = on_root(
      all, [&] { return remedies(request, limit, worst); }, "looking for what fits");
  if (limit.share() > kRefusedShare && !request.config.run.allow_over_memory) {
    refuse(fmt::format("{} ({}; or {})", need(limit, worst, ""), advice, kAnyway));
  }
  report.warning = fmt::format("memory: {} needs {} of {}: {} ({})", counted(limit.ranks, "rank"),
                               format_memory(limit.needed), limit.name, format_memory(limit.bytes), advice);
  return report;
}

double check_memory_of_measuring(const MemoryRequest& request, Communicator& all, const std::string& host) {
  MemoryPrediction prediction;
  agree(
      all, [&] { add_places(request.config, [&] { prediction.tensors = predict_measuring(request); }); },
      "predicting the memory");
  std::vector<RankMemory> ranks;
  const RankMemory own = own_memory(request, prediction, host);
  const TightestLimit limit = gathered_limit(own, all, ranks);
  if (limit.share() <= kRefusedShare || limit.ranks == 0 || request.config.run.allow_over_memory) {
    return own.resident + own.host_growth;
  }
  refuse(
      fmt::format("{} (a smaller train.global_batch_size or more parallel.microbatches, or parallel.partition as a "
                  "list of units, which needs no measurement; or {})",
                  need(limit, ranks[static_cast<std::size_t>(limit.rank)], " to measure the units"), kAnyway));
}

}  // namespace convoy
