// SPDX-License-Identifier: Apache-2.0
//
// Which GPU each rank takes, and what is wrong with the choices of all: pure functions, and what the config may ask for
// where there is no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/build/build_backend.h"
#include "app/build/config_checks.h"
#include "app/build/device_choice.h"
#include "app/build/read_config.h"
#include "app/config/config_printer.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

RankPlace place(int local_rank, int local_size) { return {local_rank, local_size, 4, "node7"}; }

std::vector<int> gpus_of(int ranks, int gpus, bool share) {
  std::vector<int> chosen;
  for (int rank = 0; rank < ranks; ++rank) chosen.push_back(choose_gpu(place(rank, ranks), gpus, share));
  return chosen;
}

template <class Body>
std::string usage_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "";
}

Config toy(const std::string& more, const std::string& precision = "fp32") {
  return parse_config(
      "model.name = \"toy\"\ndata = {kind = \"synthetic\", features = 10, targets = 5}\n[train]\nsteps = 5\n"
      "global_batch_size = 20\nloss = \"mse\"\nprecision = \"" +
          precision + "\"\n" + more,
      "a.toml");
}

std::string refused(const std::string& more, const std::string& precision = "fp32") {
  return usage_error([&] { static_cast<void>(toy(more, precision)); });
}

}  // namespace

TEST_CASE("one rank to a GPU, in order") {
  CHECK(gpus_of(4, 4, false) == std::vector<int>{0, 1, 2, 3});
  CHECK(gpus_of(2, 8, false) == std::vector<int>{0, 1});
  CHECK(gpus_of(4, 1, false) == std::vector<int>{0, 0, 0, 0});  // each may have been given its own
}

TEST_CASE("ranks take turns on GPUs where they may") {
  CHECK(gpus_of(4, 1, true) == std::vector<int>{0, 0, 0, 0});
  CHECK(gpus_of(5, 2, true) == std::vector<int>{0, 1, 0, 1, 0});
}

TEST_CASE("more ranks than GPUs") {
  CHECK(choose_gpu(place(1, 4), 2, false) == 1);
  CHECK(usage_error([] { static_cast<void>(choose_gpu(place(2, 4), 2, false)); }) ==
        "4 ranks on host node7 and 2 GPUs (start as many ranks as GPUs, or set device.share_gpu = true)");
}

TEST_CASE("two ranks that were given the same GPU") {
  const std::vector<RankDevice> apart{{0, "aa", "n1"}, {0, "bb", "n1"}, {0, "cc", "n2"}};
  const std::vector<RankDevice> together{{0, "aa", "n1"}, {0, "bb", "n1"}, {0, "bb", "n1"}};
  CHECK(device_problem(apart, false).empty());
  CHECK(device_problem(together, true).empty());
  CHECK(device_problem(together, false) ==
        "ranks 1 and 2 share GPU 0 of host n1 (start one rank per GPU, or set device.share_gpu = true)");
}

TEST_CASE("all ranks on the CPU or all on GPUs") {
  CHECK(device_problem({{-1, "-", "n1"}, {-1, "-", "n1"}}, false).empty());
  for (const bool share : {false, true}) {
    CHECK(
        device_problem({{0, "aa", "n1"}, {-1, "-", "n2"}}, share) ==
        "device.kind: rank 1 on host n2 has the CPU to compute on and rank 0 on host n1 has a GPU (start on nodes that "
        "are alike, or set device.kind = \"cpu\")");
  }
}

TEST_CASE("the CPU when it is asked for") {
  const DeviceChoice choice = choose_device(toy("[device]\nkind = \"cpu\"\n"), place(0, 2));
  CHECK_FALSE(choice.on_gpu());
  CHECK(choice.threads == 4);
  CHECK(choice.no_gpu.empty());
  const DeviceChoice alone = choose_device(toy("[device]\nkind = \"cpu\"\nthreads = 3\n"), place(0, 1));
  CHECK(alone.threads == 3);
  CHECK(alone.memory_bytes == doctest::Approx(2 * choice.memory_bytes));
  CHECK(build_backend(toy("[device]\nkind = \"cpu\"\n"), alone)->name() == "cpu");
}

TEST_CASE("where there is no GPU") {
  if (!cuda_report().devices.empty()) return;
  CHECK_FALSE(choose_device(toy(""), place(0, 1)).on_gpu());
  CHECK(choose_device(toy(""), place(0, 1)).no_gpu.empty() != kCudaBuilt);
  Config config = toy("");
  config.device.kind = DeviceKind::kCuda;
  const std::string cuda = usage_error([&] { static_cast<void>(choose_device(config, place(0, 1))); });
  CAPTURE(cuda);
  CHECK(cuda.starts_with("device.kind: \"cuda\", but CUDA finds no GPU on node7: "));
  config.device.kind = DeviceKind::kAuto;
  config.train.precision = Precision::kFp16;
  const std::string half = usage_error([&] { static_cast<void>(choose_device(config, place(0, 1))); });
  CAPTURE(half);
  CHECK(half.starts_with("train.precision: \"fp16\" needs a GPU, and CUDA finds none on node7: "));
}

TEST_CASE("keys of GPUs") {
  const Config plain = toy("");
  CHECK(plain.device.graphs);
  CHECK_FALSE(plain.device.share_gpu);
  CHECK_FALSE(plain.device.deterministic);
  const Config config = toy("[device]\nshare_gpu = true\ndeterministic = true\ngraphs = false\n");
  CHECK(config.device.share_gpu);
  CHECK(config.device.deterministic);
  CHECK_FALSE(config.device.graphs);
  CHECK(parse_config(resolved_toml(config, false), "b.toml") == config);
  CHECK(refused("[device]\nkind = \"cpu\"\ngraphs = false\n") ==
        "a.toml:10:10: device.graphs: is ignored with device.kind = \"cpu\" (it belongs to auto, cuda)");
  const std::string on_cpu = resolved_toml(toy("[device]\nkind = \"cpu\"\n"), false);
  CHECK(on_cpu.find("share_gpu") == std::string::npos);
}

TEST_CASE("steps are computed twice on a GPU only where equal inputs give equal bits") {
  Config config = toy("[run]\nreplay_every = 5\n");
  CHECK_NOTHROW(check_replay(config, false));
  const std::string refusal = usage_error([&] { check_replay(config, true); });
  CAPTURE(refusal);
  CHECK(refusal.starts_with("run.replay_every: 5 on a GPU needs device.deterministic = true: "));
  config.device.deterministic = true;
  CHECK_NOTHROW(check_replay(config, true));
  config.device.deterministic = false;
  config.run.replay_every = 0;
  CHECK_NOTHROW(check_replay(config, true));
}

TEST_CASE("loader threads: as given, or the cores that do not compute, at least one") {
  const auto threads = [](std::int64_t wanted, int share, int gpu) {
    Config config = toy("");
    config.data.loader_threads = wanted;
    RankPlace where = place(0, 1);
    where.thread_share = share;
    DeviceChoice device;
    device.threads = share;
    device.gpu = gpu;
    return choose_loader_threads(config, where, device);
  };
  CHECK(threads(0, 8, -1) == 1);  // all eight compute
  CHECK(threads(0, 8, 0) == 7);   // one feeds the GPU
  CHECK(threads(0, 1, 0) == 1);
  CHECK(threads(0, 500, 0) == 64);
  CHECK(threads(3, 8, -1) == 3);
  const DeviceChoice choice = choose_device(toy("[device]\nkind = \"cpu\"\nthreads = 1\n"), place(0, 1));
  CHECK(choice.loader_threads == std::max(1, place(0, 1).thread_share - 1));
}

TEST_CASE("what only a GPU can do") {
  for (const char* precision : {"tf32", "fp16"}) {
    CHECK(
        refused("[device]\nkind = \"cpu\"\n", precision) ==
        fmt::format("a.toml:7:13: train.precision: \"{}\" needs a CUDA device (on the CPU: fp32 or bf16)", precision));
    CHECK(refused("", precision).empty() == kCudaBuilt);
  }
  CHECK(refused("[device]\nkind = \"cuda\"\n") ==
        (kCudaBuilt ? "" : "a.toml:9:8: device.kind: this build has no CUDA backend (use \"cpu\" or \"auto\")"));
}

TEST_CASE("the folder of plans") {
  using Variables = std::map<std::string, std::string>;
  const auto folder = [](const std::string& plan_cache, const Variables& variables) {
    return plan_folder(plan_cache, [&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  CHECK(folder("auto", {{"HOME", "/home/ann"}}) == "/home/ann/.cache/convoy");
  CHECK(folder("auto", {{"HOME", "/home/ann"}, {"XDG_CACHE_HOME", "/scratch/ann"}}) == "/scratch/ann/convoy");
  CHECK(folder("auto", {{"HOME", "/home/ann"}, {"XDG_CACHE_HOME", ""}}) == "/home/ann/.cache/convoy");
  CHECK(folder("auto", {}).empty());
  CHECK(folder("", {{"HOME", "/home/ann"}}).empty());
  CHECK(folder("$SCRATCH/plans", {{"SCRATCH", "/scratch/ann"}}) == "/scratch/ann/plans");
  CHECK(usage_error([&] { folder("$SCRATCH/plans", {}); }) ==
        "$SCRATCH in \"$SCRATCH/plans\" is not set (set it, or name a folder)");
}

TEST_CASE("device.plan_cache") {
  CHECK(toy("[device]\nplan_cache = \"$HOME/plans\"\n").device.plan_cache == "$HOME/plans");
  CHECK(
      refused("[device]\nplan_cache = \"/tmp/${USER\"\n") ==
      "a.toml:9:14: device.plan_cache: \"/tmp/${USER\" has a '$' without a variable's name (must be $NAME or ${NAME})");
}
