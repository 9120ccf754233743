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
#include <utility>

#include "app/build/memory_prediction.h"
#include "app/build/read_config.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "parallel/comm/agree.h"
#include "parallel/comm/host_exchange.h"

namespace convoy {

namespace {

using Json = nlohmann::json;

constexpr double kThreadBytes = 128 << 10;  // resident: the touched part of a thread's stack and what it allocates
constexpr double kStackBytes = 8 << 20;     // virtual, of a thread
constexpr int kTries = 12;                  // halvings of a value that would fit
constexpr std::int64_t kMinImageSize = 32;

Json to_json(const TightestLimit& l) {
  return {l.name, l.host, l.ranks, l.rank, l.needed, l.bytes, l.peak, l.resident, l.on_gpu};
}

TightestLimit limit_from(const Json& json) {
  return {json[0], json[1], json[2], json[3], json[4], json[5], json[6], json[7], json[8]};
}

// Names of cgroups may be anything but UTF-8.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

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
double peak_with(const MemoryRequest& request, const TightestLimit& limit,
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
  if (limit.on_gpu) return p.tensors;
  return limit.resident + p.tensors - p.untouched + p.host() + threads_to_come(request) * kThreadBytes;
}

struct Remedies {
  const MemoryRequest& request;
  const TightestLimit& limit;
  std::vector<std::string> texts{};

  [[nodiscard]] double allowed() const { return kWarnedShare * limit.bytes / limit.ranks; }

  // Whether it fits so; one that does is noted. One that does not suit the config does not fit.
  bool fits(const std::string& setting, const std::function<void(Config&, DataShape&)>& change) {
    try {
      const double peak = peak_with(request, limit, change);
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
std::string remedies(const MemoryRequest& request, const TightestLimit& limit) {
  Remedies found{request, limit};
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

struct AllMemory {
  TightestLimit limit;
  double largest_peak = 0;
};

// Of all ranks, on each of them. Rank 0 alone sees the sums.
AllMemory gather_memory(const RankMemory& own, Communicator& all) {
  MemorySums sums;
  sums.add(all.rank(), own);
  const auto merge = [](const std::string& lower, const std::string& higher) {
    MemorySums both = MemorySums::from_text(lower);
    both.add(MemorySums::from_text(higher));
    return both.to_text();
  };
  std::string text = reduce_texts(all, sums.to_text(), merge, "memory");
  if (all.rank() == 0) {
    const MemorySums whole = MemorySums::from_text(text);
    text = dump({to_json(whole.tightest()), whole.largest_peak()});
  }
  const Json json = Json::parse(all.broadcast(std::move(text), 0, "memory"));
  return {limit_from(json[0]), json[1]};
}

std::string need(const TightestLimit& limit, const char* what) {
  const std::string who = limit.ranks == 1
                              ? fmt::format("rank {} on host {}", limit.rank, limit.host)
                              : fmt::format("{} on host {}, of them rank {} {},", counted(limit.ranks, "rank"),
                                            limit.host, limit.rank, format_memory(limit.peak));
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

void MemorySums::add(int rank, const RankMemory& memory) {
  largest_peak_ = std::max(largest_peak_, memory.peak());
  MemorySums one;
  const auto limit_of = [&](const std::string& name, double needed, double bytes) {
    return TightestLimit{
        name, memory.host, 1, rank, needed, bytes, memory.peak(), memory.resident, !memory.gpu.empty()};
  };
  const auto own = [&](const TightestLimit& limit) {
    if (one.own_.ranks == 0 || limit.share() > one.own_.share()) one.own_ = limit;
  };
  for (const HostMemoryLimit& limit : memory.limits) {
    const double needed = memory.resident + memory.host_growth;
    if (limit.key.empty()) {
      own(limit_of(limit.name, needed, limit.free + memory.resident));
    } else {
      one.shared_[memory.host + "\n" + limit.key] = {limit_of(limit.name, needed, limit.free), memory.resident};
    }
  }
  if (!memory.gpu.empty()) own(limit_of("its share of the memory of its GPU", memory.device_growth, memory.gpu_bytes));
  add(one);
}

void MemorySums::add(const MemorySums& others) {
  for (const auto& [key, sum] : others.shared_) {
    const auto [found, fresh] = shared_.try_emplace(key, sum);
    if (fresh) continue;
    TightestLimit& limit = found->second.limit;
    found->second.held += sum.held;
    limit.bytes = std::min(limit.bytes, sum.limit.bytes);
    limit.ranks += sum.limit.ranks;
    limit.needed += sum.limit.needed;
    if (sum.limit.peak <= limit.peak) continue;
    limit.rank = sum.limit.rank;
    limit.peak = sum.limit.peak;
    limit.resident = sum.limit.resident;
    limit.on_gpu = sum.limit.on_gpu;
  }
  if (others.own_.ranks > 0 && (own_.ranks == 0 || others.own_.share() > own_.share())) own_ = others.own_;
  largest_peak_ = std::max(largest_peak_, others.largest_peak_);
}

TightestLimit MemorySums::tightest() const {
  TightestLimit tightest = own_;
  for (const auto& [key, sum] : shared_) {
    TightestLimit limit = sum.limit;
    limit.bytes += sum.held;
    if (tightest.ranks == 0 || limit.share() > tightest.share()) tightest = limit;
  }
  return tightest;
}

std::string MemorySums::to_text() const {
  Json shared = Json::object();
  for (const auto& [key, sum] : shared_) shared[key] = {to_json(sum.limit), sum.held};
  return dump({shared, to_json(own_), largest_peak_});
}

MemorySums MemorySums::from_text(const std::string& text) {
  const Json json = Json::parse(text);
  MemorySums sums;
  for (const auto& [key, sum] : json[0].items()) sums.shared_[key] = {limit_from(sum[0]), sum[1]};
  sums.own_ = limit_from(json[1]);
  sums.largest_peak_ = json[2];
  return sums;
}

MemoryReport check_memory(const MemoryRequest& request, Communicator& all, const std::string& host, double measured) {
  MemoryPrediction prediction;
  agree(
      all, [&] { add_places(request.config, [&] { prediction = predict_memory(request); }); }, "predicting the memory");
  RankMemory own = own_memory(request, prediction, host);
  own.host_growth = std::max(own.host_growth, measured - own.resident);
  const auto [limit, largest_peak] = gather_memory(own, all);
  MemoryReport report;
  report.backend_bytes = prediction.tensors;
  report.peak_bytes = own.peak();
  // A sum over replicas maps the gradients of the others: seen in each process, but there once.
  if (own.gpu.empty() && prediction.gradients > 0) {
    const double replicas = request.layout.mesh.replicas();
    report.peak_bytes += prediction.gradients * (replicas - 1) / replicas;
  }
  report.line = fmt::format("predicted peak {}", format_memory(largest_peak));
  if (limit.ranks == 0) return report;
  report.line += fmt::format(" of {} a rank", format_memory(limit.bytes / limit.ranks));
  if (limit.share() <= kWarnedShare) return report;
  const auto look = [&request, &tightest = limit] { return remedies(request, tightest); };
  const std::string advice = on_root(all, look, "looking for what fits");
  if (limit.share() > kRefusedShare && !request.config.run.allow_over_memory) {
    refuse(fmt::format("{} ({}; or {})", need(limit, ""), advice, kAnyway));
  }
  report.warning = fmt::format("memory: {} needs {} of {}: {} ({})", counted(limit.ranks, "rank"),
                               format_memory(limit.needed), limit.name, format_memory(limit.bytes), advice);
  return report;
}

double check_memory_of_measuring(const MemoryRequest& request, Communicator& all, const std::string& host) {
  MemoryPrediction prediction;
  agree(
      all, [&] { add_places(request.config, [&] { prediction = predict_measuring(request); }); },
      "predicting the memory");
  const RankMemory own = own_memory(request, prediction, host);
  const TightestLimit limit = gather_memory(own, all).limit;
  if (limit.share() <= kRefusedShare || limit.ranks == 0 || request.config.run.allow_over_memory) {
    return own.resident + own.host_growth;
  }
  refuse(
      fmt::format("{} (a smaller train.global_batch_size or more parallel.microbatches, or parallel.partition as a "
                  "list of units, which needs no measurement; or {})",
                  need(limit, " to measure the units"), kAnyway));
}

}  // namespace convoy
