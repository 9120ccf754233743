// SPDX-License-Identifier: Apache-2.0
//
// Training on the GPUs of as many ranks as there are, in data, model, pipeline and hybrid layouts, recorded and not:
// the parameters become those of one CPU that computes the same microbatches one after the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/random.h"
#include "layers/models/models.h"
#include "parallel/engine/executor.h"
#include "parallel/engine/sharded_head.h"
#include "tests/parallel/comm/nccl/nccl_fixture.h"

namespace convoy {

namespace {

constexpr std::int64_t kPart = 2, kSize = 6, kClasses = 5, kSteps = 4;
constexpr double kLr = 0.05;
constexpr double kTolerance = 2e-4;

struct Layout {
  const char* schedule;
  int replicas, stages, microbatches, chunks;
  bool recorded = false, scaled = false, mixed = false, sharded = false, head = false;
  [[nodiscard]] std::string str() const {
    return fmt::format("{}, {} replicas, {} stages, {} microbatches, {} chunks{}{}{}{}{}", schedule, replicas, stages,
                       microbatches, chunks, recorded ? ", recorded" : "", scaled ? ", scaled" : "",
                       mixed ? ", mixed" : "", sharded ? ", sharded optimizer" : "", head ? ", sharded head" : "");
  }
};

std::vector<Layout> layouts(int ranks) {
  std::vector<Layout> all;
  for (const bool recorded : {false, true}) {
    all.push_back({"one_stage", ranks, 1, 2, 1, recorded, false});
    all.push_back({"one_stage", ranks, 1, 2, 1, recorded, true});
    all.push_back({"one_stage", ranks, 1, 2, 1, recorded, false, true});
    if (ranks > 1) all.push_back({"one_stage", ranks, 1, 2, 1, recorded, true, false, true});
    if (ranks > 1) all.push_back({"one_stage", ranks, 1, 2, 1, recorded, recorded, false, false, true});
  }
  if (ranks == 1) return all;
  all.push_back({"model", 1, ranks, 1, 1});
  all.push_back({"1f1b", 1, ranks, 4, 1, false, true, true});
  all.push_back({"interleaved", 1, ranks, 4, 8 / ranks});
  all.push_back({"zero_bubble", 1, ranks, 4, 1});
  all.push_back({"zb_v", 1, ranks, 4, 2});
  if (ranks < 4) return all;
  all.push_back({"model", ranks / 2, 2, 1, 1});
  all.push_back({"1f1b", ranks / 2, 2, 4, 1});
  all.push_back({"zero_bubble", ranks / 2, 2, 3, 1, false, true});
  all.push_back({"interleaved", ranks / 2, 2, 4, 2, false, false, false, true});
  return all;
}

std::vector<Unit> network() {
  return sequential_model({{"conv", Conv2dOptions{.out_channels = 4, .kernel_size = 3, .padding = 1, .bias = false}},
                           {"bn", BatchNorm2dOptions{}},
                           {"block", BasicBlockOptions{.channels = 8, .stride = 2}},
                           {"pool", GlobalAvgPoolOptions{}},
                           {"hidden", LinearOptions{.out_features = 12}},
                           {"tanh", TanhOptions{}},
                           {"middle", LinearOptions{.out_features = 8}},
                           {"gelu", GeluOptions{}},
                           {"fc", LinearOptions{.out_features = kClasses}},
                           {"last", LinearOptions{.out_features = kClasses}}});
}

// Images and labels of the microbatches first, first + 1, ... of the `all` of a step; mixed and erased, if they are to
// be, with the sample before the first in front.
struct Data {
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels, erased;
  std::vector<Batch> batches;

  Data(std::int64_t step, int first, int microbatches, int all, std::int64_t samples, bool mixed) {
    const std::int64_t pixels = 3 * kSize * kSize, in_front = mixed ? 1 : 0, count = samples + in_front;
    for (int m = first; m < first + microbatches; ++m) {
      for (std::int64_t i = -in_front; i < samples; ++i) {
        const std::int64_t of = (m * samples + i + all * samples) % (all * samples);  // of the step
        const auto key = static_cast<std::uint64_t>(1000 * step + of);
        for (std::int64_t p = 0; p < pixels; ++p) {
          images.push_back(static_cast<std::uint8_t>(random_bits(key, static_cast<std::uint64_t>(p))));
        }
        labels.push_back(static_cast<std::int64_t>(random_bits(key + 500, 0) % kClasses));
        erased.insert(erased.end(), {of % 3, 1, of % 4, 2});
      }
    }
    const bool cut = step % 2 == 1;  // else mixup
    Mixing mixing;
    mixing.box = cut ? std::array<std::int64_t, 4>{1, 2, 4, 3} : std::array<std::int64_t, 4>{0, 0, kSize, kSize};
    mixing.pixels = cut ? std::array<float, 2>{0, 1} : std::array<float, 2>{0.3F, 0.7F};
    mixing.labels = {0.4F, 0.6F};
    for (int m = 0; m < microbatches; ++m) {
      Batch batch;
      batch.samples = samples;
      batch.input_shape = {samples, 3, kSize, kSize};
      batch.input_dtype = DType::kU8;
      batch.inputs = images.data() + m * count * pixels;
      batch.labels = labels.data() + m * count;
      if (mixed) {
        batch.erased = erased.data() + 4 * m * count;
        batch.mixing = mixing;
      }
      batches.push_back(batch);
    }
  }
};

// The end of an epoch is smaller: other shapes, recorded anew.
std::int64_t samples_of(std::int64_t step) { return step == 2 ? kPart - 1 : kPart; }

using Parameters = std::vector<HostTensor>;

// Everything of one rank but its backend and communicators.
struct Rank {
  Schedule schedule;
  Model model;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  Executor executor;

  Rank(Backend& backend, const Layout& layout, const Executor::Coordinates& at, const StepRecording::Record& record)
      : schedule(make_schedule(layout.schedule, layout.stages, layout.microbatches, layout.chunks)),
        model(backend, network(), {kPart, 3, kSize, kSize}, 7, nullptr, chunks(at.stage), at.head),
        optimizer(make_optimizer(
            SgdOptions{.weight_decay = 1e-3}, backend, model.parameters(), {},
            layout.sharded ? OptimizerShard{at.replicas->rank(), at.replicas->size()} : OptimizerShard{})),
        scaler(layout.scaled),
        executor(model, *optimizer, Loss{}, {{0.5F}, {0.25F}}, schedule, at, {1e-4, 5e-4}, scaler, record) {}

  std::vector<UnitRange> chunks(int stage) const {
    const int units = static_cast<int>(network().size());
    std::vector<UnitRange> held;
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      const int part = schedule.virtual_stage(stage, chunk), parts = schedule.virtual_stages();
      held.push_back({part * units / parts, (part + 1) * units / parts});
    }
    return held;
  }

  Parameters train(int replica, int replicas, int microbatches, bool mixed) {
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const std::int64_t samples = samples_of(step);
      const Data data(step, replica * microbatches, microbatches, replicas * microbatches, samples, mixed);
      executor.train_step(data.batches, samples * microbatches * replicas, kLr, step, {});
    }
    executor.share_state();
    const ParameterStore& store = model.parameters();
    Parameters result = store.export_model();
    for (const auto& p : store.parameters()) {
      if (!p->shard || p->shard->count == 0) continue;
      const std::vector<float> rows = store.export_rows(*p, store.values());
      HostTensor& tensor = result.emplace_back(p->name, p->file_shape.with_batch(p->shard->count), DType::kF32);
      std::memcpy(tensor.bytes.data(), rows.data(), tensor.bytes.size());
    }
    return result;
  }
};

Parameters train_on_cpu(int microbatches, bool mixed) {
  OnednnBackend cpu(1, DType::kF32);
  return Rank(cpu, {"one_stage", 1, 1, microbatches, 1}, {}, {}).train(0, 1, microbatches, mixed);
}

Parameters train_on_gpus(const Layout& layout) {
  CudaOptions options;
  options.device = test_device();
  options.deterministic = true;
  CudaBackend gpu(options);
  const int rank = test_world().rank(), stage = rank % layout.stages, replica = rank / layout.stages;
  const auto stages =
      nccl_communicator(test_world().ranks().split(replica, stage, kTestTimeout, "stages"), gpu, "stages");
  const auto replicas =
      nccl_communicator(test_world().ranks().split(stage, replica, kTestTimeout, "replicas"), gpu, "replicas");
  StepRecording::Record record;
  if (layout.recorded) record = [&](const std::function<void()>& body) { return gpu.record(body); };
  std::unique_ptr<ShardedHead> head;
  if (layout.head) head = std::make_unique<ShardedHead>(*replicas, gpu, kPart);
  Rank own(gpu, layout, {stage, stages.get(), replicas.get(), head.get()}, record);
  return own.train(replica, layout.replicas, layout.microbatches, layout.mixed);
}

// Of float32, where `a` has the rows of b that come from row `first` on; counts of batches are equal.
double difference(const HostTensor& a, const HostTensor& b, std::int64_t first) {
  if (a.dtype != DType::kF32) return a.bytes == b.bytes ? 0 : INFINITY;
  double largest = 0, size = 1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.shape.size()); ++i) {
    const double x = a.data<float>()[i],
                 y = b.data<float>()[static_cast<std::size_t>(first * b.shape.sample_size()) + i];
    if (!std::isfinite(x)) return INFINITY;
    largest = std::max(largest, std::abs(x - y));
    size = std::max(size, std::abs(y));
  }
  return largest / size;
}

void check_parameters(const Parameters& own, const Parameters& cpu) {
  CHECK_FALSE(own.empty());
  for (const HostTensor& one : own) {
    const auto found = std::find_if(cpu.begin(), cpu.end(), [&](const HostTensor& x) { return x.name == one.name; });
    REQUIRE(found != cpu.end());
    const bool sharded = one.shape != found->shape;
    const std::int64_t first =
        sharded ? class_shard(kClasses, test_world().rank(), test_world().size()).first : std::int64_t{0};
    CHECK_MESSAGE(difference(one, *found, first) <= kTolerance, one.name);
  }
}

bool same_bits(const Parameters& a, const Parameters& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const HostTensor& x, const HostTensor& y) { return x.name == y.name && x.bytes == y.bytes; });
}

}  // namespace

TEST_CASE("training on GPUs gives the parameters of one CPU, twice with the same bits") {
  for (const Layout& layout : layouts(test_world().size())) {
    CAPTURE(layout.str());
    const Parameters first = train_on_gpus(layout);
    check_parameters(first, train_on_cpu(layout.replicas * layout.microbatches, layout.mixed));
#ifndef CONVOY_ADDRESS_SANITIZER  // takes long
    CHECK(same_bits(train_on_gpus(layout), first));
#endif
  }
}

}  // namespace convoy
