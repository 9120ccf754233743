// SPDX-License-Identifier: Apache-2.0
//
// Bench points, and predictions against what can be worked out by hand.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "app/bench/bench_points.h"
#include "app/planning/predict.h"
#include "layers/base/error.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

namespace {

// Four equal units, a second of forward and of each half of backward per sample, nothing else costs anything.
MachineModel simple_machine() {
  MachineModel machine;
  machine.name = "simple";
  machine.sizes.push_back({1, std::vector<UnitCost>(4, UnitCost{1, 1, 1, 100, 10, 1000})});
  return machine;
}

Config simple_config(ParallelMode mode, std::int64_t microbatches) {
  Config config;
  config.parallel.mode = mode;
  config.parallel.microbatches = microbatches;
  config.train.global_batch_size = 8;
  return config;
}

Prediction predicted(const Config& config, const MachineModel& machine, int ranks) {
  return predict(plan_layout(config, ranks), config, machine, config.train.global_batch_size);
}

std::string words_of(const std::vector<std::string>& cases) {
  try {
    static_cast<void>(bench_points(cases, {}, 2));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("cases and sweeps multiply") {
  const auto points = bench_points({"ranks=1", "ranks=2 parallel.mode=model"}, {{"train.x", {"1", "2"}}}, 4);
  REQUIRE(points.size() == 4);
  CHECK(points[0].words == "ranks=1 train.x=1");
  CHECK(points[0].ranks == 1);
  CHECK(points[3].words == "ranks=2 parallel.mode=model train.x=2");
  CHECK(points[3].overrides == std::vector<std::string>{"parallel.mode=model", "train.x=2"});
  const auto one = bench_points({}, {}, 4);
  REQUIRE(one.size() == 1);
  CHECK(one[0].words.empty());
  CHECK(one[0].ranks == 0);
}

TEST_CASE("cases that are none") {
  CHECK(words_of({"ranks=3"}).find("3 ranks are wanted, and 2 were started") != std::string::npos);
  CHECK(words_of({"ranks=0"}).find("not a number of ranks") != std::string::npos);
  CHECK(words_of({"ranks=2x"}).find("not a number of ranks") != std::string::npos);
  CHECK(words_of({"parallel.mode"}).find("not KEY=VALUE") != std::string::npos);
}

TEST_CASE("one rank, and ranks that share the batch") {
  const MachineModel machine = simple_machine();
  CHECK(predicted(simple_config(ParallelMode::kData, 1), machine, 1).seconds == doctest::Approx(8 * 4 * 3));
  CHECK(predicted(simple_config(ParallelMode::kData, 1), machine, 4).seconds == doctest::Approx(2 * 4 * 3));
}

TEST_CASE("a model in stages takes as long as on one rank; a pipeline has the published bubble") {
  const MachineModel machine = simple_machine();
  CHECK(predicted(simple_config(ParallelMode::kModel, 1), machine, 2).seconds == doctest::Approx(8 * 4 * 3));
  Config config = simple_config(ParallelMode::kPipeline, 8);
  // (microbatches + stages - 1) times a stage's time of one sample: two units, three seconds each.
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx((8 + 2 - 1) * 2 * 3));
  config.parallel.schedule = "gpipe";
  const Prediction gpipe = predicted(config, machine, 2);
  CHECK(gpipe.seconds == doctest::Approx((8 + 2 - 1) * 2 * 3));
  CHECK(gpipe.bubble() == doctest::Approx(1.0 / 9));
  // Eight caches of two units; parameters, gradients and one slot of two units.
  CHECK(gpipe.peak_bytes == doctest::Approx(8 * 2 * 10 + 3 * 2 * 1000));
}

TEST_CASE("links, reductions and the optimizer take their time") {
  MachineModel machine = simple_machine();
  machine.node = {0.5, 100};  // 1 s for the 100 bytes of an activation, and half a second before
  CHECK(predicted(simple_config(ParallelMode::kModel, 1), machine, 2).seconds ==
        doctest::Approx(8 * 4 * 3 + 2 * (0.5 + 8)));
  machine.node = {0, 0};
  machine.node_reduce = 1000;
  machine.optimizer_seconds = 0.01;
  // All-reduce of 4000 bytes over 2 ranks moves 2 (n - 1) / n of them; the update walks 4000 bytes.
  CHECK(predicted(simple_config(ParallelMode::kData, 1), machine, 2).seconds == doctest::Approx(4 * 4 * 3 + 4 + 40));
  machine.reduce_hidden = 1;
  CHECK(predicted(simple_config(ParallelMode::kData, 1), machine, 2).seconds == doctest::Approx(4 * 4 * 3 + 40));
}

TEST_CASE("reductions over nodes go at the network's speed") {
  MachineModel machine = simple_machine();
  machine.ranks_per_node = 4;
  machine.node = {0, 1000};
  machine.network = {0.25, 10};
  CHECK(machine.all_reduce_seconds(1000, 1, 1) == 0);
  CHECK(machine.all_reduce_seconds(1000, 4, 1) == doctest::Approx(2 * 0.75));
  CHECK(machine.all_reduce_seconds(1000, 8, 1) == doctest::Approx(2 * 3 * 0.25 + 2 * 0.875 * 100));
  CHECK(machine.all_reduce_seconds(1000, 2, 4) == doctest::Approx(2 * 0.25 + 100));
}

TEST_CASE("costs between measured sizes are interpolated, beyond them in proportion") {
  MachineModel machine = simple_machine();
  machine.sizes[0].samples = 2;
  machine.sizes.push_back({4, std::vector<UnitCost>(4, UnitCost{5, 1, 1, 200, 20, 1000})});
  CHECK(machine.costs(2)[0].forward == doctest::Approx(1));
  CHECK(machine.costs(3)[0].forward == doctest::Approx(3));
  CHECK(machine.costs(4)[0].forward == doctest::Approx(5));
  CHECK(machine.costs(8)[0].forward == doctest::Approx(10));
  CHECK(machine.costs(1)[0].forward == doctest::Approx(0.5));
  CHECK(machine.costs(8)[0].parameter_bytes == 1000);
}

TEST_CASE("the best layouts come first and fit in memory") {
  MachineModel machine = simple_machine();
  const Config config = simple_config(ParallelMode::kData, 1);
  const auto best = best_layouts(config, machine, 4, 8, 1000);
  for (std::size_t i = 1; i < best.size(); ++i) CHECK(best[i - 1].seconds <= best[i].seconds);
  CHECK(best.front().layout.mesh.stages() == 1);  // nothing costs anything but the bubble
  machine.memory_bytes = 7000;                    // parameters, gradients and a slot of four units are 12000
  const auto small = best_layouts(config, machine, 4, 8, 1000);
  for (const Prediction& p : small) {
    CHECK(p.peak_bytes <= 7000);
    CHECK(p.layout.mesh.stages() > 1);
  }
  machine.memory_bytes = 1000;
  CHECK_THROWS_AS((void)best_layouts(config, machine, 4, 8, 5), Error);
}

TEST_CASE("a layout that does not fit is tried with recomputed blocks, whose forward runs twice") {
  MachineModel machine = simple_machine();
  for (UnitCost& unit : machine.sizes.front().units) unit.cache_bytes = 10000;
  Config config = simple_config(ParallelMode::kData, 1);
  config.model.name = "mlp";
  config.model.hidden = {1, 1, 1};  // of four units fc1 is a block, fc2 and fc3 are another
  // One sample: 12000 of parameters and 40000 of activations; with blocks 10000 of fc1, 100 of fc2 and 10000 of fc4.
  machine.memory_bytes = 60000;
  const Prediction kept = best_layouts(config, machine, 1, 8, 1).front();
  CHECK_FALSE(kept.layout.recompute);
  CHECK(kept.seconds == doctest::Approx(8 * 4 * 3));
  machine.memory_bytes = 40000;
  const LayoutMemory memory = [](const Layout& layout, std::int64_t) {
    return std::vector<double>{layout.recompute ? 32100.0 : 52000.0};
  };
  for (const LayoutMemory& checks : {LayoutMemory(), memory}) {
    const Prediction again = best_layouts(config, machine, 1, 8, 1, checks).front();
    CHECK(again.layout.recompute);
    CHECK(again.seconds == doctest::Approx(8 * (4 * 3 + 3)));
    CHECK(again.peak_bytes == doctest::Approx(32100));
  }
  config.model.recompute.blocks = true;  // costs and memory are those of the config
  CHECK_THROWS_AS((void)best_layouts(config, machine, 1, 8, 1), Error);
}

TEST_CASE("a search that is told to stop ends at the next layout") {
  int layouts = 0;
  const auto stop = [&] {
    if (++layouts == 3) fail("stopped");
  };
  CHECK_THROWS_WITH_AS((void)best_layouts(simple_config(ParallelMode::kData, 1), simple_machine(), 4, 8, 5, {}, stop),
                       "stopped", Error);
  CHECK(layouts == 3);
}

TEST_CASE("a machine survives its file") {
  MachineModel machine = simple_machine();
  machine.node = {1e-6, 1e9};
  machine.crowding = 1.25;
  const test::TemporaryFolder folder;
  const std::string path = folder / "costs.json";
  write_machine(path, machine);
  const MachineModel back = read_machine(path);
  CHECK(back.name == machine.name);
  CHECK(back.node.latency == machine.node.latency);
  CHECK(back.crowding == machine.crowding);
  REQUIRE(back.sizes.size() == 1);
  CHECK(back.sizes[0].units[3].cache_bytes == 10);
  CHECK_THROWS_AS((void)read_machine("/nonexistent/costs.json"), Error);
}
