// SPDX-License-Identifier: Apache-2.0
//
// The predicted memory of tensors against the pool of a run with the same layers, and what ranks need together.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/build/build_backend.h"
#include "app/build/build_model.h"
#include "app/build/build_run.h"
#include "app/build/memory_check.h"
#include "app/build/memory_prediction.h"
#include "app/build/read_config.h"
#include "io/data/datasets.h"
#include "parallel/comm/rehearsal_communicator.h"

using namespace convoy;

namespace {

constexpr double kGib = 1 << 30;

Config read(const std::string& model, const std::string& train, const std::string& more = "") {
  const std::string text = fmt::format(
      "[model]\n{}\n[data]\nkind = \"synthetic\"\nimage_size = 16\nsamples = 24\n"
      "[train]\nsteps = 3\nglobal_batch_size = 24\n{}\n{}",
      model, train, more);
  return parse_config(text, "test.toml", {}, InputFiles::kTrust);
}

// Steps with real memory and real data.
double measured(const Config& c, const Dataset& data, const Layout& layout, const DeviceChoice& device) {
  const auto backend = build_backend(c, device);
  const std::int64_t samples = layout.microbatch(c.train.global_batch_size);
  Model model(*backend, build_units(c, data), microbatch_shape(data, samples), c.run.seed);
  const auto optimizer = make_optimizer(c.optimizer.update, *backend, model.parameters(), c.optimizer.no_decay);
  LossScaler scaler(false);
  RehearsalCommunicator alone(0, 1);
  const auto replay = make_replay(c, model, *optimizer, alone, 0);
  const auto average = make_average(c, model);
  const auto runner = make_runner(c, layout, {}, model, *optimizer, scaler, {}, replay.get(), average.get());
  Loader loader(data, Sampler(data.size(), 0, true), loader_options(c, layout, 0, 0, 1, false));
  for (int step = 0; step < 3; ++step) {
    static_cast<void>(runner->train_step(loader.next().microbatches, c.train.global_batch_size, 0.01, step, {}));
  }
  return static_cast<double>(backend->pool().peak_bytes());
}

void check_exact(const Config& c) {
  DeviceChoice device;
  device.threads = 2;
  const auto data = open_dataset({c.data, "", true, c.run.seed, false, c.model.classes});
  Layout layout = plan_layout(c, 1);
  cut_model(layout, c, describe_model(c, *build_backend(c, device), *data, layout.microbatch(24)), 0);
  const auto predict = [&] {
    return predict_memory({c, layout, 0, data_shape(c, *data), std::nullopt, RunPurpose::kTiming, device});
  };
  const MemoryPrediction p = predict();
  CHECK(p.tensors == measured(c, *data, layout, device));
  const bool erases = c.data.augments("erase"), mixes = c.data.augmentation().mixes();
  CHECK(p.loader == 4.0 * (mixes ? 25 : 24) * (3 * 16 * 16 + 8 + (erases ? 32 : 0)));
  CHECK(p.checkpoint == 0);
  // Where memory is limited large blocks are addresses without memory: whatever reads one crashes.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
  // AddressSanitizer has reserved some 20 TiB.
  const rlimit limit{std::min<rlim_t>(rlim_t{1} << 46, before.rlim_max), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  const MemoryPrediction same = predict();
  REQUIRE(setrlimit(RLIMIT_DATA, &before) == 0);
  CHECK(same.tensors == p.tensors);
}

constexpr const char* kResnet = "name = \"resnet18\"\nstem = \"small\"\nclasses = 10";
constexpr const char* kLayers = R"(name = "sequential"
classes = 10
[[model.layers]]
type = "conv2d"
out_channels = 16
kernel_size = [3, 1]
[[model.layers]]
type = "gelu"
[[model.layers]]
type = "layer_norm"
[[model.layers]]
type = "conv2d"
out_channels = 48
kernel_size = 3
groups = 4
stride = 2
[[model.layers]]
type = "batch_norm2d"
[[model.layers]]
type = "relu"
[[model.layers]]
type = "avg_pool2d"
kernel_size = 2
[[model.layers]]
type = "conv2d"
out_channels = 64
kernel_size = 1
stride = 2
[[model.layers]]
type = "max_pool2d"
kernel_size = 2
padding = 1
[[model.layers]]
type = "flatten"
[[model.layers]]
type = "dropout"
[[model.layers]]
type = "linear"
out_features = 300
[[model.layers]]
type = "tanh"
[[model.layers]]
type = "linear"
out_features = 10
)";

Config weighted(Config c) {
  c.data.class_weights = std::vector<double>(10, 0.5);
  return c;
}

Config mixed(Config c) {
  c.data.augment = {"erase", "mixup", "cutmix"};
  return c;
}

}  // namespace

TEST_CASE("a rehearsal asks for the memory of real steps, to the byte") {
  SUBCASE("resnet") { check_exact(read(kResnet, "")); }
  SUBCASE("bfloat16") { check_exact(read(kResnet, "precision = \"bf16\"")); }
  SUBCASE("microbatches") { check_exact(read(kResnet, "", "[parallel]\nmicrobatches = 3\n")); }
  SUBCASE("frozen") { check_exact(read(fmt::format("{}\nfreeze = [\"stem\", \"layer1\"]", kResnet), "")); }
  SUBCASE("recomputed") { check_exact(read(fmt::format("{}\nrecompute = \"blocks\"", kResnet), "")); }
  SUBCASE("replay") { check_exact(read(kResnet, "", "[run]\nreplay_every = 2\n")); }
  SUBCASE("every step twice") { check_exact(read(kLayers, "", "[run]\nreplay_every = 1\n")); }
  SUBCASE("adamw") { check_exact(read(kResnet, "", "[optimizer]\nname = \"adamw\"\n")); }
  SUBCASE("lars") { check_exact(read(kResnet, "", "[optimizer]\nname = \"lars\"\n")); }
  SUBCASE("lamb, clipping, an average of the weights, decay of a part") {
    check_exact(read(kLayers, "ema_decay = 0.9",
                     "[optimizer]\nname = \"lamb\"\nclip_norm = 1\nno_decay = [\"norm\", \"bias\"]\n"));
  }
  SUBCASE("mixed") { check_exact(mixed(read(kResnet, ""))); }
  SUBCASE("class weights") { check_exact(weighted(read(kLayers, ""))); }
  SUBCASE("mixed microbatches") { check_exact(mixed(read(kLayers, "", "[parallel]\nmicrobatches = 3\n"))); }
  SUBCASE("bottlenecks") { check_exact(read("name = \"resnet50\"\nclasses = 10", "")); }
  SUBCASE("layers of all kinds") { check_exact(read(kLayers, "label_smoothing = 0.1")); }
  SUBCASE("layers of all kinds, bfloat16, mse") { check_exact(read(kLayers, "precision = \"bf16\"\nloss = \"mse\"")); }
}

TEST_CASE("checkpoints and their copies count on rank 0") {
  const Config c = read("name = \"mlp\"\nhidden = [50]\nclasses = 10", "", "[optimizer]\nname = \"adamw\"\n");
  const auto data = open_dataset({c.data, "", true, c.run.seed, false, c.model.classes});
  Layout layout = plan_layout(c, 2);
  layout.partition = {{0, static_cast<int>(build_units(c, *data).size())}};
  const auto of_rank = [&](int rank, RunPurpose purpose) {
    return predict_memory({c, layout, rank, data_shape(c, *data), std::nullopt, purpose, {}, true});
  };
  // 768 -> 50 -> 10: parameters and two moments of each, as tensors, as a file, and as the file before.
  const double parameters = 768 * 50 + 50 + 50 * 10 + 10;
  CHECK(of_rank(0, RunPurpose::kTraining).checkpoint == 3 * 3 * 4 * parameters);
  CHECK(of_rank(1, RunPurpose::kTraining).checkpoint == 0);
  CHECK(of_rank(0, RunPurpose::kTiming).checkpoint == 0);
  CHECK(of_rank(1, RunPurpose::kTraining).gradients >= 4 * parameters);
}

namespace {

TightestLimit tightest_limit(const std::vector<RankMemory>& ranks) {
  MemorySums sums;
  for (std::size_t i = 0; i < ranks.size(); ++i) sums.add(static_cast<int>(i), ranks[i]);
  return sums.tightest();
}

}  // namespace

TEST_CASE("the tightest limit: ranks of a node share it, address space is each one's own") {
  const auto rank = [](const char* host, double growth) {
    RankMemory r;
    r.host = host;
    r.resident = 1 * kGib;
    r.host_growth = growth * kGib;
    r.limits = {{"the node", "node", 8 * kGib}, {"address space", "", 20 * kGib}};
    return r;
  };
  TightestLimit limit = tightest_limit({rank("a", 3), rank("a", 4), rank("b", 5)});
  CHECK(limit.name == "the node");
  CHECK(limit.host == "a");
  CHECK(limit.ranks == 2);
  CHECK(limit.rank == 1);
  CHECK(limit.needed == 9 * kGib);
  CHECK(limit.bytes == 10 * kGib);  // 8 free, and 1 that each of the two holds
  CHECK(limit.share() == doctest::Approx(0.9));
  RankMemory narrow = rank("b", 5);
  narrow.limits[1].free = 3 * kGib;
  limit = tightest_limit({rank("a", 3), narrow});
  CHECK(limit.name == "address space");
  CHECK(limit.ranks == 1);
  CHECK(limit.rank == 1);
  CHECK(limit.share() == doctest::Approx(6.0 / 4.0));
  narrow.limits[1].free = -3 * kGib;
  CHECK(tightest_limit({narrow}).share() > kRefusedShare);
  CHECK(tightest_limit({RankMemory()}).ranks == 0);
}

TEST_CASE("sums of parts of 128 ranks, which travel as text, give the limit of all") {
  MemorySums whole;
  std::vector<MemorySums> parts(8);  // of 16 ranks
  for (int rank = 0; rank < 128; ++rank) {
    RankMemory r;
    r.host = fmt::format("n{}", rank / 12);  // nodes of twelve, which the parts cut
    r.resident = (1 + rank % 5) * kGib;
    r.host_growth = (3 + rank % 7) * kGib;
    r.limits = {{"the node", "node", (70 + rank % 3) * kGib}, {"address space", "", 40 * kGib}};
    whole.add(rank, r);
    parts[static_cast<std::size_t>(rank / 16)].add(rank, r);
  }
  MemorySums joined;
  for (const MemorySums& part : parts) joined.add(MemorySums::from_text(part.to_text()));
  const TightestLimit one = whole.tightest(), other = joined.tightest();
  CHECK(one.ranks == 12);
  CHECK(other.host == one.host);
  CHECK(other.ranks == one.ranks);
  CHECK(other.rank == one.rank);
  CHECK(other.needed == one.needed);
  CHECK(other.bytes == one.bytes);
  CHECK(other.peak == one.peak);
  CHECK(joined.largest_peak() == whole.largest_peak());
  CHECK(joined.to_text().size() < 12 * 200);  // a sum for each node
}

TEST_CASE("bytes for people") {
  CHECK(format_memory(310.4 * (1 << 20)) == "310 MiB");
  CHECK(format_memory(1.25 * kGib) == "1.2 GiB");
  CHECK(format_memory(200 * kGib) == "200 GiB");
  CHECK(format_memory(-5) == "0 MiB");
}
