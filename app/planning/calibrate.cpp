// SPDX-License-Identifier: Apache-2.0
#include "app/planning/calibrate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/build/build_backend.h"
#include "app/build/build_layout.h"
#include "app/build/build_model.h"
#include "layers/base/median.h"
#include "layers/base/rehearsal.h"
#include "layers/base/stopwatch.h"
#include "parallel/comm/agree.h"
#include "parallel/engine/batch_transfer.h"

namespace convoy {

namespace {

constexpr std::int64_t kLargeMessage = 4 << 20;  // floats: 16 MiB
constexpr int kRounds = 7;

double seconds_of(const std::vector<UnitCost>& costs) {
  double sum = 0;
  for (const UnitCost& cost : costs) sum += cost.seconds();
  return sum;
}

// Half a round trip of so many floats between ranks 0 and 1.
double message_seconds(Backend& backend, Communicator& all, const Tensor& buffer) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    all.barrier("calibration");
    Stopwatch watch;
    if (all.rank() == 0) {
      all.send(buffer, 1, 0, "calibration")->wait();
      all.receive(buffer, 1, 0, "calibration")->wait();
    } else if (all.rank() == 1) {
      all.receive(buffer, 0, 0, "calibration")->wait();
      all.send(buffer, 0, 0, "calibration")->wait();
    }
    backend.synchronize();
    seconds.push_back(watch.lap() / 2);
  }
  return median(seconds);
}

// all: carries the backend's tensors.
void measure_links(MachineModel& machine, Backend& backend, Communicator& all) {
  if (all.size() < 2) return;
  const Tensor small = backend.tensor({1}, DType::kF32);
  const Tensor large = backend.tensor({kLargeMessage}, DType::kF32);
  backend.zero(small);
  backend.zero(large);
  Link& node = machine.cluster.node;
  node.latency = message_seconds(backend, all, small);
  node.bytes_per_second =
      static_cast<double>(large.bytes()) / std::max(1e-9, message_seconds(backend, all, large) - node.latency);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    all.barrier("calibration");
    Stopwatch watch;
    all.all_reduce(large, ReduceOp::kSum, "calibration")->wait();
    backend.synchronize();
    seconds.push_back(watch.lap());
  }
  const double n = all.size();
  machine.cluster.node_reduce = 2 * (n - 1) / n * static_cast<double>(large.bytes()) / median(seconds);
  machine.cluster.network = node;  // the ranks that were started are all that was measured
}

// The optimizer's time per byte of parameters, over the largest unit.
double measure_optimizer(const Config& config, Backend& backend, const Dataset& data) {
  const Shape input = microbatch_shape(data, 1);
  const auto infos = describe_units(backend, build_units(config, data), input);
  std::vector<Unit> units = build_units(config, data);
  const auto largest = std::max_element(
      infos.begin(), infos.end(), [](const UnitInfo& a, const UnitInfo& b) { return a.parameters() < b.parameters(); });
  Unit& unit = units[static_cast<std::size_t>(largest - infos.begin())];
  ParameterStore store(backend);
  BuildContext context{backend, store};
  unit.layer->build(context, unit.path, largest->input);
  store.finalize(0);
  const auto optimizer = make_optimizer(config.optimizer.update, backend, store, config.optimizer.no_decay);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    Stopwatch watch;
    optimizer->step(0, round, Tensor());
    store.refresh_compute();
    backend.synchronize();
    seconds.push_back(watch.lap());
  }
  return median(seconds) / static_cast<double>(store.values().bytes());
}

// Copying and normalising a batch, per sample.
double measure_input(const Config& config, Backend& backend, const Dataset& data) {
  constexpr std::int64_t kSamples = 8;
  const Shape shape = microbatch_shape(data, kSamples);
  const std::vector<std::byte> host(static_cast<std::size_t>(shape.size()) * dtype_size(data.input_dtype()));
  BatchTransfer transfer(backend, shape, shape[1], normalization(config.data));
  Batch batch;
  batch.samples = kSamples;
  batch.input_shape = shape;
  batch.input_dtype = data.input_dtype();
  batch.inputs = host.data();
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    Stopwatch watch;
    static_cast<void>(transfer.inputs(batch));
    backend.synchronize();
    seconds.push_back(watch.lap());
  }
  return median(seconds) / kSamples;
}

}  // namespace

MeasuredModel measured_model(const Config& config, const Dataset& data, const DeviceChoice& device) {
  const Rehearsal rehearsal;
  MeasuredModel model;
  model.precision = to_string(config.train.precision);
  for (const UnitInfo& unit : describe_model(config, *rehearsal_backend(config, device), data, 1)) {
    model.units.push_back({unit.name, unit.output.size(), unit.frozen ? 0 : unit.parameters()});
  }
  return model;
}

MachineModel calibrate(const Config& config, const Dataset& data, const DeviceChoice& device, const RankGroup& ranks,
                       Communicator& all, const CheckStop& check_stop) {
  MachineModel machine;
  const std::int64_t largest = config.train.global_batch_size;
  for (std::int64_t samples = 2; samples < largest; samples *= 2) {  // batch norm may want more than one
    machine.sizes.push_back({samples, measure_costs(config, data, samples, device, all, check_stop)});
  }
  machine.sizes.push_back({largest, measure_costs(config, data, largest, device, all, check_stop)});

  machine.measured = measured_model(config, data, device);
  const auto backend = build_backend(config, device);
  {
    const auto links = device_communicator(ranks.communicator(config.parallel.timeout, "calibration"), *backend, config,
                                           Traffic::kBoth, "calibration");
    measure_links(machine, *backend, *links);
  }
  std::array<double, 3> own{};
  agree(
      all,
      [&] {
        own[0] = measure_optimizer(config, *backend, data);
        own[1] = measure_input(config, *backend, data);
      },
      "calibration");
  // How much slower units are while all ranks compute: the first ranks measure alone, the others wait.
  const SizedCosts& together = machine.sizes[machine.sizes.size() / 2];
  if (all.size() > 1) {
    agree(
        all,
        [&] {
          if (all.rank() != 0) return;
          own[2] = seconds_of(together.units) /
                   seconds_of(measure_units(config, data, together.samples, device, 0, 1, check_stop));
        },
        "calibration");
  }
  // Rank 0's numbers count, so that all ranks plan alike.
  if (all.rank() != 0) own = {};
  all.all_reduce(std::span<double>(own), ReduceOp::kSum, "calibration");
  machine.optimizer_seconds = own[0];
  machine.input_seconds = own[1];
  machine.crowding = all.size() > 1 ? std::max(1.0, own[2]) : 1;
  Cluster& cluster = machine.cluster;
  std::array<double, 3> link{cluster.node.latency, cluster.node.bytes_per_second, cluster.node_reduce};
  if (all.rank() != 0) link = {};
  all.all_reduce(std::span<double>(link), ReduceOp::kSum, "calibration");
  cluster.node = {link[0], link[1]};
  cluster.network = cluster.node;
  cluster.node_reduce = link[2];
  machine.memory_bytes = device.memory_bytes;
  machine.name =
      fmt::format("measured: {}, {} {}", backend->description(), all.size(), all.size() == 1 ? "rank" : "ranks");
  return machine;
}

}  // namespace convoy
