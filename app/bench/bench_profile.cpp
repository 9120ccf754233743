// SPDX-License-Identifier: Apache-2.0
#include "app/bench/bench_profile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "app/train/batch_feed.h"
#include "layers/base/clock.h"

namespace convoy {

namespace {

constexpr std::int64_t kWarmup = 2;

// Operations as layers see them: "conv2d_backward_input" is a conv2d, going back to the input.
enum class Way { kForward, kBackwardInput, kBackwardWeight };
struct Place {
  std::string layer;
  Way way;
};

Place place_of(const std::string& operation) {
  constexpr std::array<std::pair<std::string_view, Way>, 8> kEndings{{{"_backward_weight", Way::kBackwardWeight},
                                                                      {"_backward_input", Way::kBackwardInput},
                                                                      {"_backward_input_add", Way::kBackwardInput},
                                                                      {"_backward_addend", Way::kBackwardInput},
                                                                      {"_backward_reduce", Way::kBackwardWeight},
                                                                      {"_backward_apply", Way::kBackwardInput},
                                                                      {"_backward", Way::kBackwardInput},
                                                                      {"_forward", Way::kForward}}};
  for (const auto& [ending, way] : kEndings) {
    if (operation.ends_with(ending)) return {operation.substr(0, operation.size() - ending.size()), way};
  }
  for (const std::string_view ending : {"_statistics", "_apply"}) {
    if (operation.ends_with(ending)) return {operation.substr(0, operation.size() - ending.size()), Way::kForward};
  }
  return {operation, Way::kForward};
}

// Sums of entries, from which all rates follow.
struct Sum {
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, best = 0;

  void add(const ProfileEntry& entry, const DeviceBounds& bounds) {
    calls += entry.calls;
    seconds += entry.seconds;
    flops += entry.cost.flops;
    bytes += entry.cost.bytes;
    best += std::max(entry.cost.flops / bounds.flops_per_second, entry.cost.bytes / bounds.bytes_per_second);
  }
  [[nodiscard]] double rate(double amount) const { return seconds > 0 ? amount / seconds : 0; }
};

std::string rates(double flops_per_second, double bytes_per_second, double of_bound) {
  return fmt::format("{:>9} {:>8.1f} {:>7.0f}%",
                     flops_per_second > 0 ? fmt::format("{:.0f}", flops_per_second / 1e9) : "-", bytes_per_second / 1e9,
                     100 * of_bound);
}

}  // namespace

std::vector<ProfileLine> lines_by_operation(const StepProfile& profile) {
  std::map<std::string, Sum> sums;
  Sum all;
  for (const auto& [key, entry] : profile.entries) {
    sums[key.operation].add(entry, profile.bounds);
    all.add(entry, profile.bounds);
  }
  const double steps = static_cast<double>(profile.steps);
  std::vector<ProfileLine> lines;
  lines.reserve(sums.size() + 1);
  for (const auto& [name, sum] : sums) {
    lines.push_back({name, sum.calls / profile.steps, sum.seconds / steps, sum.seconds / steps / profile.step_seconds,
                     sum.rate(sum.flops), sum.rate(sum.bytes), sum.rate(sum.best)});
  }
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const double rest = profile.step_seconds - all.seconds / steps;
  lines.push_back({"between operations", 0, rest, rest / profile.step_seconds, 0, 0, 0});
  return lines;
}

std::vector<LayerLine> lines_by_layer(const StepProfile& profile) {
  struct Gathered {
    LayerLine line;
    Sum sum;
  };
  std::map<std::pair<std::string, std::string>, Gathered> layers;
  const double steps = static_cast<double>(profile.steps);
  for (const auto& [key, entry] : profile.entries) {
    const Place place = place_of(key.operation);
    const std::string name = fmt::format("{} {}", place.layer, key.detail);
    Gathered& layer = layers[{key.unit, name}];
    layer.line.unit = key.unit;
    layer.line.layer = name;
    layer.sum.add(entry, profile.bounds);
    double& seconds = place.way == Way::kForward         ? layer.line.forward
                      : place.way == Way::kBackwardInput ? layer.line.backward_input
                                                         : layer.line.backward_weight;
    seconds += entry.seconds / steps;
  }
  std::vector<LayerLine> lines;
  for (auto& [key, layer] : layers) {
    layer.line.share = layer.sum.seconds / steps / profile.step_seconds;
    layer.line.flops_per_second = layer.sum.rate(layer.sum.flops);
    layer.line.bytes_per_second = layer.sum.rate(layer.sum.bytes);
    layer.line.of_bound = layer.sum.rate(layer.sum.best);
    lines.push_back(std::move(layer.line));
  }
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return lines;
}

std::string profile_report(const StepProfile& profile) {
  std::string text =
      fmt::format("profile of {} steps, {:.2f} ms each\n{:<28} {:>6} {:>10} {:>7} {:>9} {:>8} {:>8}\n", profile.steps,
                  1e3 * profile.step_seconds, "operation", "calls", "ms", "share", "GFLOP/s", "GB/s", "of bound");
  for (const ProfileLine& line : lines_by_operation(profile)) {
    text +=
        fmt::format("{:<28} {:>6} {:>10.3f} {:>6.1f}%", line.name, line.calls, 1e3 * line.seconds, 100 * line.share);
    if (line.calls > 0) text += ' ' + rates(line.flops_per_second, line.bytes_per_second, line.of_bound);
    text += '\n';
  }
  text += fmt::format("\n{:<12} {:<44} {:>9} {:>9} {:>9} {:>7} {:>9} {:>8} {:>8}\n", "unit", "layer", "forward",
                      "d input", "d weight", "share", "GFLOP/s", "GB/s", "of bound");
  for (const LayerLine& line : lines_by_layer(profile)) {
    text += fmt::format("{:<12} {:<44} {:>9.3f} {:>9.3f} {:>9.3f} {:>6.1f}% {}\n", line.unit, line.layer,
                        1e3 * line.forward, 1e3 * line.backward_input, 1e3 * line.backward_weight, 100 * line.share,
                        rates(line.flops_per_second, line.bytes_per_second, line.of_bound));
  }
  text += fmt::format(
      "\nbounds: {:.0f} GFLOP/s (matrix product), {:.1f} GB/s (vector update); \"of bound\" is the time that the "
      "larger "
      "of both would need over the time taken\n",
      profile.bounds.flops_per_second / 1e9, profile.bounds.bytes_per_second / 1e9);
  const auto convolutions = [&](const char* how, double seconds) {
    if (seconds == 0) return std::string();
    return fmt::format("{}: {:.2f} ms, the step's convolutions each alone: {:.1f} % of the step\n", how, 1e3 * seconds,
                       100 * seconds / profile.step_seconds);
  };
  text += convolutions("convolution bound", profile.convolution_bound);
  text += convolutions("by the library's direct algorithm", profile.direct_convolution_bound);
  return text;
}

StepProfile profile_steps(Run& run, std::int64_t steps) {
  auto& backend = static_cast<ProfileBackend&>(*run.backend);
  BatchFeed feed = whole_batches(run, kWarmup + steps);
  std::chrono::steady_clock::time_point start;
  for (std::int64_t i = 0; i < kWarmup + steps; ++i) {
    if (i == kWarmup) {
      backend.restart();
      start = std::chrono::steady_clock::now();
    }
    run.communicator->barrier("profile step");
    const LoaderStep batch = feed.next();
    run.runner->train_step(batch.microbatches, batch.global_samples, run.lr.at(i), i, [&] { feed.fetch_ahead(); });
  }
  StepProfile profile;
  profile.steps = steps;
  profile.entries = backend.entries();  // waits for the last step
  profile.step_seconds = seconds_since(start) / static_cast<double>(steps);
  run.communicator->barrier("end of the profile");  // the bounds want the node for themselves, as far as ranks share it
  profile.bounds = measure_bounds(backend.inner());
  const auto convolutions_alone = [&](Backend& on) {
    double sum = 0;
    for (const auto& [call, seconds] : time_alone(on, backend.convolutions())) {
      sum += seconds * static_cast<double>(backend.convolutions().at(call)) / static_cast<double>(steps);
    }
    return sum;
  };
  profile.convolution_bound = convolutions_alone(backend.inner());
  if (const auto direct = backend.inner().with_direct_convolutions()) {
    profile.direct_convolution_bound = convolutions_alone(*direct);
  }
  run.communicator->barrier("end of the bounds");
  return profile;
}

}  // namespace convoy
