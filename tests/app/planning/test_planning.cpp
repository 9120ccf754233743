// SPDX-License-Identifier: Apache-2.0
//
// Bench points, and predictions against what can be worked out by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "app/bench/bench_points.h"
#include "app/planning/predict.h"
#include "app/planning/terms.h"
#include "layers/base/error.h"

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

TEST_CASE("a case of processes is of ranks that each train alone") {
  const auto points = bench_points({"processes=2 train.x=1", "ranks=2"}, {}, 2);
  REQUIRE(points.size() == 2);
  CHECK(points[0].ranks == 2);
  CHECK(points[0].independent);
  CHECK(points[0].overrides == std::vector<std::string>{"train.x=1"});
  CHECK_FALSE(points[1].independent);
}

TEST_CASE("cases that are none") {
  CHECK(words_of({"ranks=3"}).find("3 ranks are wanted, and 2 were started") != std::string::npos);
  CHECK(words_of({"ranks=0"}).find("not a number of ranks") != std::string::npos);
  CHECK(words_of({"ranks=2x"}).find("not a number of ranks") != std::string::npos);
  CHECK(words_of({"processes=3"}).find("3 ranks are wanted, and 2 were started") != std::string::npos);
  CHECK(words_of({"processes=-1"}).find("not a number of ranks") != std::string::npos);
  CHECK(words_of({"ranks=2 processes=2"}).find("one of ranks=N and processes=N") != std::string::npos);
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
  machine.cluster.node = {0.5, 100};  // 1 s for the 100 bytes of an activation, and half a second before
  CHECK(predicted(simple_config(ParallelMode::kModel, 1), machine, 2).seconds ==
        doctest::Approx(8 * 4 * 3 + 2 * (0.5 + 8)));
  machine.cluster.node = {0, 0};
  machine.cluster.node_reduce = 1000;
  machine.optimizer_seconds = 0.01;
  // All-reduce of 4000 bytes over 2 ranks moves 2 (n - 1) / n of them; the update walks 4000 bytes.
  Config config = simple_config(ParallelMode::kData, 1);
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(4 * 4 * 3 + 4 + 40));
  CHECK(predicted(config, machine, 2).peak_bytes == doctest::Approx(12000 + 4 * 4 * 10));
  config.parallel.shard_optimizer = true;  // half of the update, half of its state
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(4 * 4 * 3 + 4 + 20));
  CHECK(predicted(config, machine, 2).peak_bytes == doctest::Approx(10000 + 4 * 4 * 10));
}

TEST_CASE("buckets are reduced while the backward fills them") {
  MachineModel machine = simple_machine();
  machine.cluster.node_reduce = 1000;
  machine.overlaps = true;
  Config config = simple_config(ParallelMode::kData, 1);
  // Of 4 samples a unit's backward takes 8 s. One bucket is full when it ends, and takes 4 s.
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 4));
  // Four of 1000 bytes: three are hidden. The 1000 bytes of a unit are there when its backward ends.
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1000.0 / (1 << 20);
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 1));
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1e-20;  // smaller than an element
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 1));
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1000.0 / (1 << 20);
  // 20 s each: the first begins at 16 + 8, the others follow at once.
  machine.cluster.node_reduce = 50;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(24 + 4 * 20));
  // At half the speed for 24 s the backward would end at 60.
  machine.contention = 0.5;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(24 + 4 * 20));
  machine.cluster.node_reduce = 1000;
  // Four of 1 s, three of them beside the backward.
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 1.5 + 1));
}

TEST_CASE(
    "a sharded optimizer scatters gradients beside the backward and gathers parameters behind it, or hides that") {
  MachineModel machine = simple_machine();
  machine.cluster.node_reduce = 1000;
  machine.overlaps = true;
  Config config = simple_config(ParallelMode::kData, 1);
  config.parallel.shard_optimizer = true;
  config.parallel.first_bucket_mb = config.parallel.bucket_mb = 1000.0 / (1 << 20);
  // Half of what an all-reduce moves in each direction: 500 bytes of the last bucket, 2000 of all parameters.
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 0.5 + 2));
  config.device.graphs = false;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 0.5));
  machine.cluster.node_reduce = 100;  // 20 s, 4 more than the forward
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 5 + 4));
  config.train.ema_decay = 0.9;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 5 + 20));
}

TEST_CASE("a sharded head exchanges features in place of gradients") {
  MachineModel machine = simple_machine();
  machine.cluster.node_reduce = 1000;
  machine.optimizer_seconds = 0.01;
  Config config = simple_config(ParallelMode::kData, 1);
  config.parallel.shard_head = true;
  // Half of the last unit's 1000 bytes are updated, and none of its gradients travel.
  constexpr double kAlike = 48 + 3 + 35;
  // 25 outputs of 4 bytes and 250 parameters: 9 features. Rows of 8 samples: 288 bytes of features and 64 of labels are
  // gathered, 16 and 24 bytes a row are all-reduced, 288 bytes of gradients are scattered.
  constexpr double kTraffic = 0.144 + 0.032 + 0.128 + 0.192 + 0.144;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(kAlike + kTraffic));
  CHECK(predicted(config, machine, 2).peak_bytes == doctest::Approx(3 * 3500 + 4 * 4 * 10));
  CHECK(predicted(config, without(machine, Term::kReduce), 2).seconds == doctest::Approx(48 + 35));
  CHECK(predicted(config, machine, 1).seconds == doctest::Approx(96 + 40));
  config.train.precision = Precision::kBf16;  // twice as many outputs, so 4 features, of 2 bytes; gradients of 4
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(kAlike + 0.032 + 0.032 + 0.128 + 0.192 + 0.064));
  config.parallel.microbatches = 2;  // of half as many rows
  config.train.precision = Precision::kFp32;
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(kAlike + kTraffic));
}

TEST_CASE("fixed time, the slowest rank and the input") {
  MachineModel machine = simple_machine();
  const Config config = simple_config(ParallelMode::kData, 1);
  machine.step_seconds = 5;
  machine.jitter = 0.1;
  CHECK(predicted(config, machine, 1).seconds == doctest::Approx(96 + 5));
  // The expected maximum of two normal draws is 1 / sqrt(pi) deviations above the mean.
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(48 + 5 + 4.8 / std::sqrt(std::numbers::pi)));
  machine.input_samples_per_second = 0.05;  // 8 samples on one node
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(160));
  machine.cluster.ranks_per_node = 1;  // on two
  CHECK(predicted(config, machine, 2).seconds == doctest::Approx(80));
}

TEST_CASE("a step is the sum of its parts, and terms can be left out") {
  MachineModel machine = simple_machine();
  machine.overlaps = true;
  machine.cluster.node = {0.125, 1000};
  machine.step_seconds = 5;
  machine.jitter = 0.1;
  machine.optimizer_seconds = 0.001;
  machine.contention = 0.5;
  for (const auto mode : {ParallelMode::kData, ParallelMode::kPipeline}) {
    const Config config = simple_config(mode, 2);
    const Prediction p = predicted(config, machine, 4);
    double sum = 0, fixed = 0;
    for (const StepPart& part : step_parts(p, config, machine)) {
      sum += part.seconds;
      if (part.name == "fixed") fixed = part.seconds;
    }
    CHECK(sum == doctest::Approx(p.seconds));
    CHECK(fixed == doctest::Approx(5));
  }
  const Config config = simple_config(ParallelMode::kData, 1);
  MachineModel bare = machine;
  for (const Term term : {Term::kOptimizer, Term::kReduce, Term::kFixed, Term::kJitter}) bare = without(bare, term);
  CHECK(predicted(config, bare, 4).seconds == doctest::Approx(24));
  // All 4000 bytes behind the backward: the ring's six messages and 6000 bytes.
  MachineModel late = without(without(without(machine, Term::kBuckets), Term::kJitter), Term::kFixed);
  CHECK(predicted(config, without(late, Term::kOptimizer), 4).seconds == doctest::Approx(24 + 6 * 0.125 + 6));
  CHECK_THROWS_WITH_AS((void)parse_terms({"launch", "jiter"}, "--without"),
                       "--without: no term \"jiter\" (did you mean \"jitter\"?)", Error);
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
  config.model.recompute.blocks = true;  // the config's own
  const Prediction own = best_layouts(config, machine, 1, 8, 1).front();
  CHECK_FALSE(own.layout.recompute);
  CHECK(own.seconds == doctest::Approx(8 * (4 * 3 + 3)));
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

TEST_CASE("a layout that the model refuses is no candidate") {
  const LayoutMemory memory = [](const Layout& layout, std::int64_t global_batch) -> std::vector<double> {
    if (layout.microbatch(global_batch) < 4) fail_usage("bn: one value");
    return std::vector<double>(static_cast<std::size_t>(layout.mesh.stages()), 0.0);
  };
  const Config config = simple_config(ParallelMode::kData, 1);
  const auto best = best_layouts(config, simple_machine(), 2, 8, 1000, memory);
  CHECK_FALSE(best.empty());
  for (const Prediction& p : best) CHECK(p.layout.microbatch(8) >= 4);
  CHECK_THROWS_WITH_AS((void)best_layouts(config, simple_machine(), 1, 2, 5, memory),
                       "--ranks: no layout of 1 ranks suits a batch of 2 and 4 units within 0 GB a rank: bn: one value",
                       Error);
  const LayoutMemory broken = [](const Layout& /*layout*/, std::int64_t) -> std::vector<double> { fail("broken"); };
  CHECK_THROWS_WITH_AS((void)best_layouts(config, simple_machine(), 1, 2, 5, broken), "broken", Error);
}
