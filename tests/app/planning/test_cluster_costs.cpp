// SPDX-License-Identifier: Apache-2.0
//
// All-reduce, the slowest of N ranks, tiles and the time of a training against closed forms; stated machines and their
// files.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>
#include <string>
#include <vector>

#include "app/build/build_data.h"
#include "app/planning/all_reduce.h"
#include "app/planning/count_work.h"
#include "app/planning/machine_figures.h"
#include "app/planning/order_statistics.h"
#include "app/planning/stated_machine.h"
#include "app/planning/terms.h"
#include "app/planning/training_time.h"
#include "layers/base/error.h"
#include "tests/app/planning/gpu_configs.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

namespace {

// Nodes of four ranks and two network cards.
Cluster small_cluster() {
  Cluster cluster;
  cluster.ranks_per_node = 4;
  cluster.node = {0.25, 1000};
  cluster.network = {1, 10};
  cluster.cards = 2;
  return cluster;
}

std::string complaint(const std::string& path) {
  try {
    static_cast<void>(read_figures(path));
  } catch (const Error& error) {
    return error.code() == ExitCode::kUsage ? error.what() : "not a usage error";
  }
  return "";
}

std::string machine_file(const test::TemporaryFolder& folder, const std::string& from, const std::string& to) {
  std::ifstream in(CONVOY_CONFIGS "/machines/h200_dgx.toml");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  text.replace(text.find(from), from.size(), to);
  std::string path = folder / "machine.toml";
  std::ofstream(path) << text;
  return path;
}

// A 1x1 convolution's product and two bytes a sample.
ModelWork small_work() {
  UnitWork unit;
  unit.name = "unit";
  OperationWork product;
  product.kernels = 2;
  product.bytes = {100, 2};
  product.rows = {0, 128};
  product.columns = {128, 0};
  product.depth = {10, 0};
  unit.forward = {product};
  unit.backward_input = {product, product};
  unit.parameter_bytes = 100;
  return {{unit}, 50, 3};
}

}  // namespace

TEST_CASE("an all-reduce by ring, trees and in the network") {
  using enum AllReduceAlgorithm;
  const Cluster cluster = small_cluster();
  CHECK(all_reduce_time(cluster, 1000, 1, 1).seconds == 0);
  CHECK(all_reduce_time(cluster, 0, 8, 1).seconds == 0);
  // On a node: 2 (n - 1) messages, 2 (n - 1) / n of the bytes; a tree is a chain there.
  CHECK(all_reduce_seconds(cluster, kRing, 1000, 4, 1) == doctest::Approx(6 * 0.25 + 1.5));
  CHECK(all_reduce_seconds(cluster, kTree, 1000, 4, 1) == doctest::Approx(6 * 0.25 + 2));
  // On four nodes of two cards, 20 bytes per second: 6 of 30 messages cross the network.
  CHECK(all_reduce_seconds(cluster, kRing, 1000, 16, 1) == doctest::Approx(6 * 1 + 24 * 0.25 + 2 * 15.0 / 16 * 50));
  CHECK(all_reduce_seconds(cluster, kTree, 1000, 16, 1) == doctest::Approx(6 * 0.25 + 2 * 2 * 1 + 2 * 50));
  CHECK(all_reduce_seconds(cluster, kInNetwork, 1000, 16, 1) == doctest::Approx(6 * 0.25 + 2 * 1 + 50));
  // One of four ranks of each node: the four groups share the cards.
  CHECK(all_reduce_seconds(cluster, kRing, 1000, 4, 4) == doctest::Approx(6 * 1 + 1.5 * 1000 / 5));
  // Two of four: 0.25 s within a node.
  CHECK(all_reduce_seconds(cluster, kRing, 1000, 4, 2) == doctest::Approx(2 * 1 + 4 * 0.25 + 1.5 * 1000 / 10));
  // Two nodes, the second half empty.
  CHECK(all_reduce_seconds(cluster, kRing, 1000, 6, 1) == doctest::Approx(2 * 1 + 8 * 0.25 + 10.0 / 6 * 50));
}

TEST_CASE("the fastest all-reduce is chosen") {
  Cluster cluster = small_cluster();
  CHECK(all_reduce_time(cluster, 1e6, 16, 1).algorithm == AllReduceAlgorithm::kRing);
  CHECK(all_reduce_time(cluster, 1, 1024, 1).algorithm == AllReduceAlgorithm::kTree);
  cluster.in_network = true;
  CHECK(all_reduce_time(cluster, 1e6, 16, 1).algorithm == AllReduceAlgorithm::kInNetwork);
  CHECK(all_reduce_time(cluster, 1e6, 4, 1).algorithm == AllReduceAlgorithm::kRing);  // it does not leave the node
}

TEST_CASE("ranks that share a bus or network cards") {
  Cluster cluster = small_cluster();
  CHECK(cluster.link(0, 3).bytes_per_second == 1000);
  CHECK(cluster.link(3, 4).bytes_per_second == 5);
  CHECK(cluster.link(3, 4).latency == 1);
  cluster.node_shared = 400;
  CHECK(cluster.link(0, 3).bytes_per_second == 100);
  CHECK(all_reduce_seconds(cluster, AllReduceAlgorithm::kRing, 1000, 4, 1) == doctest::Approx(6 * 0.25 + 15));
  cluster.cards = 0;  // one for each rank
  CHECK(cluster.link(3, 4).bytes_per_second == 10);
}

TEST_CASE("the expected slowest of N ranks") {
  using enum JitterDistribution;
  CHECK(expected_maximum(1, kNormal) == 0);
  // Exact for two and three; tables of order statistics beyond (Harter 1961).
  CHECK(expected_maximum(2, kNormal) == doctest::Approx(1 / std::sqrt(std::numbers::pi)).epsilon(1e-6));
  CHECK(expected_maximum(3, kNormal) == doctest::Approx(1.5 / std::sqrt(std::numbers::pi)).epsilon(1e-6));
  CHECK(expected_maximum(10, kNormal) == doctest::Approx(1.53875).epsilon(1e-5));
  CHECK(expected_maximum(100, kNormal) == doctest::Approx(2.50759).epsilon(1e-5));
  CHECK(expected_maximum(4, kExponential) == doctest::Approx(1.0 / 2 + 1.0 / 3 + 1.0 / 4));
  // Both formulas at their border, and Gumbel's limit.
  CHECK(expected_maximum(1001, kExponential) - expected_maximum(1000, kExponential) == doctest::Approx(1.0 / 1001));
  CHECK(expected_maximum(1 << 20, kExponential) == doctest::Approx(20 * std::numbers::ln2 + 0.577216 - 1));
}

TEST_CASE("tiles and waves") {
  CHECK(tile_efficiency(100, 100, 100, 1, false, 0) == 1);
  CHECK(tile_efficiency(128 * 10, 128 * 2, 64, 1, false, 10) == doctest::Approx(1));  // two full waves
  CHECK(tile_efficiency(128 * 11, 128, 64, 1, false, 10) == doctest::Approx(0.66));   // 22 of half size in three waves
  CHECK(tile_efficiency(129, 128, 64, 1, false, 1) == doctest::Approx(129.0 / 192 * 0.75));  // six small tiles
  CHECK(tile_efficiency(64, 64, 64, 1, false, 2) == doctest::Approx(0.375));    // one of two multiprocessors
  CHECK(tile_efficiency(128, 128, 1 << 14, 1, true, 8) == doctest::Approx(1));  // eight parts of its depth
  CHECK(tile_efficiency(128, 128, 64, 8, false, 8) == doctest::Approx(1));      // eight groups
}

TEST_CASE("an operation takes its kernels and the longer of product and bytes") {
  GpuFigures gpu;
  gpu.flops = 1000, gpu.flops_efficiency = 0.5, gpu.memory_bytes_per_second = 10, gpu.memory_efficiency = 0.5;
  gpu.kernel_seconds = 3;
  const ModelWork work = small_work();
  const OperationWork& operation = work.units[0].forward[0];
  CHECK(operation.flops(4) == 2 * 128 * 4 * 128 * 10);
  CHECK(operation_seconds(operation, gpu, 4) == doctest::Approx(2 * 3 + 2 * 128 * 4 * 128 * 10 / 500.0));
  gpu.flops = 1e9;
  CHECK(operation_seconds(operation, gpu, 4) == doctest::Approx(2 * 3 + 108 / 5.0));
  const UnitCost cost = unit_cost(work.units[0], gpu, 4);
  CHECK(cost.backward_input == doctest::Approx(2 * cost.forward));
  CHECK(cost.backward_weight == 0);
  CHECK(optimizer_seconds_per_byte(work, gpu) == doctest::Approx((3 * 3 + 50 / 5.0) / 100));
}

TEST_CASE("the counted work of a network is that of its layers") {
  const Config config = test::resnet50_on_gpus();
  const ModelWork work = count_work(config, *build_dataset(config, "", "data.train"));
  CHECK(work.units.size() == 18);
  CHECK(work.parameter_bytes() == 4 * 25557032.0);  // torchvision's count
  // 4.09 GFLOPs of multiplications and additions forward (torchvision: 4.09 G), twice for the gradients, less that of
  // the input; 294 MB an image is the count of convoy bench --model-bytes.
  double flops = 0, bytes = 0, forward = 0;
  for (const UnitWork& unit : work.units) {
    for (const auto* list : {&unit.forward, &unit.backward_input, &unit.backward_weight}) {
      for (const OperationWork& operation : *list) {
        flops += operation.flops(256), bytes += operation.bytes.per_sample;
        if (list == &unit.forward) forward += operation.flops(256);
      }
    }
  }
  CHECK(forward == doctest::Approx(256 * 2 * 4.09e9).epsilon(0.01));
  const double first = 2.0 * 112 * 112 * 64 * 3 * 49;
  CHECK(flops == doctest::Approx(3 * forward - 256 * first).epsilon(1e-9));
  CHECK(bytes == doctest::Approx(293.7e6).epsilon(0.01));
}

TEST_CASE("epochs of large batches") {
  const Recipe& recipe = find_recipe("mlperf");
  CHECK(recipe_epochs(recipe, 3200) == 35);
  CHECK(recipe_epochs(recipe, 57344) == 77);
  const double middle = std::sqrt(20480.0 * 32256);  // half-way in the logarithm
  CHECK(recipe_epochs(recipe, std::lround(middle)) == doctest::Approx(53).epsilon(1e-4));
  CHECK_THROWS_WITH_AS(
      (void)recipe_epochs(recipe, 256),
      "--recipe: mlperf says nothing of a global batch of 256 (it covers 3200 to 57344; or give --epochs)", Error);
  CHECK_THROWS_AS((void)find_recipe("mlpref"), Error);
}

TEST_CASE("the time, GPU hours and energy of a training") {
  MachineModel machine;
  machine.sizes.push_back({1, {{2, 1, 1, 0, 0, 0}}});
  machine.cluster.ranks_per_node = 4;
  machine.job = {.startup_seconds = 7, .checkpoint_bytes_per_second = 10, .gpu_watts = 300, .node_watts = 600};
  Prediction prediction;
  prediction.layout.mesh = Mesh(6, 1);
  prediction.layout.costs = machine.costs(1);
  prediction.global_batch = 12;
  prediction.seconds = 4;
  TrainingPlan plan;
  plan.samples = 100, plan.evaluation_samples = 30, plan.epochs = 3, plan.state_bytes = 50;
  plan.eval_every_epochs = 2;
  const TrainingTime time = training_time(prediction, machine, plan);
  CHECK(time.steps == 25);
  CHECK(time.training == 100);
  CHECK(time.evaluation == 3 * 2);  // after two epochs three batches, forward is half of the units' time
  CHECK(time.checkpoints == 5);     // at the end
  CHECK(time.seconds() == 100 + 6 + 5 + 7);
  CHECK(time.gpu_hours() == doctest::Approx(6 * 118 / 3600.0));
  CHECK(time.kilowatt_hours() == doctest::Approx((6 * 300 + 2 * 600) * 118 / 3.6e6));
  plan.checkpoint_steps = 10, plan.checkpoint_epochs = 2;  // 10, 20; two epochs; the end
  CHECK(training_time(prediction, machine, plan).checkpoints == 4 * 5);
  plan.checkpoint_steps = 5;  // 5, ..., 25, which is the end
  CHECK(training_time(prediction, machine, plan).checkpoints == 6 * 5);
  for (const Term term : {Term::kEvaluation, Term::kCheckpoint, Term::kStartup}) machine = without(machine, term);
  CHECK(training_time(prediction, machine, plan).seconds() == 100);
}

TEST_CASE("the machines that come with the program, and what is no machine") {
  const test::TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(CONVOY_CONFIGS "/machines")) {
    MachineFigures figures = read_figures(entry.path());
    figures.jitter = 1.0 / 3;
    figures.network_reduces = true;
    figures.jitter_distribution = JitterDistribution::kExponential;
    const std::string path = folder / "again.toml";
    std::ofstream(path) << figures_toml(figures, "A comment\nof two lines");
    const MachineFigures again = read_figures(path);
    for (const Figure& figure : machine_figures()) CHECK(again.*figure.value == figures.*figure.value);
    CHECK(again.name == figures.name);
    CHECK(again.network_reduces);
    CHECK(again.jitter_distribution == JitterDistribution::kExponential);
    figures.name = "a\x1b[2J\n\"b\"\x7f";
    std::ofstream(path) << figures_toml(figures, "A comment on " + figures.name);
    CHECK(read_figures(path).name == figures.name);
  }
  const std::string place = folder / "";
  CHECK(complaint(place) == "--machine: " + place + ": is a folder (name a TOML file of a machine's figures)");
  const auto with = [&](const std::string& from, const std::string& to) {
    const std::string text = complaint(machine_file(folder, from, to));
    const std::size_t name = text.find("machine.toml");
    return name == std::string::npos ? text : text.substr(name);
  };
  CHECK(with("jitter = 0.01", "jiter = 0.01") == "machine.toml:17: jiter: unknown key, did you mean jitter?");
  CHECK(with("jitter = 0.01", "jitter = nan").starts_with("machine.toml:17: jitter: nan is not a finite number"));
  CHECK(with("jitter = 0.01", "jitter = \"a\"") == "machine.toml:17: jitter: must be a number");
  CHECK(with("latency = 5e-6", "delay = 5e-6") == "machine.toml:20: node.delay: unknown key");
  CHECK(with("jitter = 0.01", "\"network.latency\" = 0.01") ==
        "machine.toml:17: \"network.latency\": unknown key (write network.latency without quotes)");
  CHECK(with("cards = 8", "cards = 0.5") == "machine.toml:26: network.cards: 0.5 is not a whole number");
  CHECK(with("flops = 989e12", "flops = 0").starts_with("machine.toml:7: flops: 0 is not a finite number above 0"));
  CHECK(with("element_bytes = 2", "element_bytes = 3") == "machine.toml:13: element_bytes: 3 is neither 2 nor 4");
  CHECK(with("memory_gb = 141", "") == "machine.toml: memory_gb: missing (must be a number)");
  CHECK(with("[job]", "[job").starts_with("machine.toml:"));
  CHECK(complaint(folder / "none.toml").find("none.toml") != std::string::npos);
}
