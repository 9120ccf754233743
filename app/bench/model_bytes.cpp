// SPDX-License-Identifier: Apache-2.0
#include "app/bench/model_bytes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/build/build_backend.h"
#include "app/build/build_data.h"
#include "app/build/build_layout.h"
#include "app/build/build_model.h"
#include "app/build/rehearsed_rank.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/rehearsal.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;
// Of TrafficKind, up to what has a line of its own.
constexpr auto kKindNames = std::to_array<std::string_view>(
    {"convolutions, linear layers", "batch norm: statistics", "batch norm: apply", "batch norm: backward reduce",
     "batch norm: backward apply", "sums of two gradients", "rest"});
static_assert(kKindNames.size() == static_cast<std::size_t>(TrafficKind::kGradientCasts));
constexpr std::string_view kOutside = "input and loss";

BytesLine& line_of(std::vector<BytesLine>& lines, std::string_view name) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&](const BytesLine& line) { return line.name == name; });
  return found != lines.end() ? *found : lines.back();
}

std::string mb(const ModelBytes& bytes, double moved) { return fmt::format("{:>9.2f}", 1e-6 * bytes.per_image(moved)); }

std::string unit_row(const ModelBytes& bytes, const BytesLine& line) {
  return fmt::format("{:<30}{}{}{}{} {:>8} {:>8}\n", line.name, mb(bytes, line.forward.bytes),
                     mb(bytes, line.forward.least), mb(bytes, line.backward.bytes), mb(bytes, line.backward.least),
                     line.forward.nodes, line.backward.nodes);
}

Json line_json(const ModelBytes& bytes, const char* what, const BytesLine& line) {
  return {{what, line.name},
          {"forward_bytes", bytes.per_image(line.forward.bytes)},
          {"forward_least_bytes", bytes.per_image(line.forward.least)},
          {"forward_nodes", line.forward.nodes},
          {"backward_bytes", bytes.per_image(line.backward.bytes)},
          {"backward_least_bytes", bytes.per_image(line.backward.least)},
          {"backward_nodes", line.backward.nodes}};
}

}  // namespace

std::vector<UnitInfo> rehearse_step(const Config& given, const Dataset& data, TrafficBackend& backend) {
  Config config = given;
  config.run.replay_every = 0;  // a step that is computed once
  Layout layout = plan_layout(config, 1);

  const Rehearsal rehearsal;
  const std::int64_t samples = layout.microbatch(config.train.global_batch_size);
  std::vector<UnitInfo> infos = describe_model(config, backend, data, samples);
  check_outputs(config, data, infos.back().output);
  cut_model(layout, config, infos, 0);
  const MemoryRequest request{config, layout, 0, data_shape(config, data), std::nullopt, RunPurpose::kTiming, {}};
  RehearsedRank rank(request, backend, config.train.precision == Precision::kFp16);
  rank.make_optimizer();
  rank.make_runner();
  rank.train_step();  // the first one makes buffers
  backend.restart();
  rank.train_step();
  return infos;
}

ModelBytes count_model_bytes(const Config& config) {
  if (config.parallel.mode == ParallelMode::kScatter) {
    fail_option("parallel.mode", "scatter has no step of one rank (--model-bytes counts one: choose another mode)");
  }
  const auto data = build_dataset(config, config.data.train, "data.train");
  check_data(config, *data, nullptr);
  TrafficBackend backend({compute_type(config.train.precision), config.device.deterministic});
  const std::vector<UnitInfo> infos = rehearse_step(config, *data, backend);

  ModelBytes bytes;
  bytes.backend = backend.description();
  bytes.images = config.train.global_batch_size;
  bytes.total.name = "total";
  for (const UnitInfo& unit : infos) bytes.units.push_back({unit.name, {}, {}});
  bytes.units.push_back({std::string(kOutside), {}, {}});
  for (const std::string_view name : kKindNames) bytes.kinds.push_back({std::string(name), {}, {}});
  for (const auto& [key, moved] : backend.traffic()) {
    if (key.phase == "optimizer" || key.kind == TrafficKind::kGradientCasts) {
      (key.phase == "optimizer" ? bytes.optimizer : bytes.gradient_casts) += moved;
      continue;
    }
    for (BytesLine* line : {&bytes.total, &line_of(bytes.units, key.unit == key.phase ? kOutside : key.unit),
                            &bytes.kinds[static_cast<std::size_t>(key.kind)]}) {
      (key.phase == "backward" ? line->backward : line->forward) += moved;
    }
  }
  return bytes;
}

std::string model_bytes_report(const ModelBytes& bytes, double bandwidth) {
  std::string text = fmt::format(
      "{}: what a step of {} images moves between GPU and memory, counted and not measured\n\n"
      "{:<30}{:>9}{:>9}{:>9}{:>9} {:>8} {:>8}\n{:<30}{:>9}{:>9}{:>9}{:>9} {:>8} {:>8}\n",
      bytes.backend, bytes.images, "MB an image, graph nodes", "forward", "at least", "backward", "at least", "forward",
      "backward", "unit", "MB", "MB", "MB", "MB", "nodes", "nodes");
  for (const BytesLine& line : bytes.units) text += unit_row(bytes, line);
  text += unit_row(bytes, bytes.total);
  text += "\nby kind of operation\n";
  for (const BytesLine& line : bytes.kinds) text += unit_row(bytes, line);
  const auto step = [&](const char* what, const Moved& moved, const char* where) {
    return fmt::format("{}: {:.2f} GB a step, {} {}\n", what, 1e-9 * moved.bytes, moved.nodes, where);
  };
  text += fmt::format("\ntotal: {:.1f} MB an image, {:.1f} at least; {} graph nodes\n", 1e-6 * bytes.bytes_per_image(),
                      1e-6 * bytes.per_image(bytes.total.forward.least + bytes.total.backward.least), bytes.nodes());
  text += step("gradients to float32", bytes.gradient_casts, "of these nodes");
  text += step("optimizer", bytes.optimizer, "kernels behind the graph");
  text +=
      "\"at least\": every convolution and linear layer reads its two operands and writes its result once, in the "
      "compute type, and nothing else moves\n";
  if (bandwidth > 0) {
    const double whole = static_cast<double>(bytes.images) * bytes.bytes_per_image() + bytes.gradient_casts.bytes +
                         bytes.optimizer.bytes;
    const double seconds = 1e-9 * whole / bandwidth;
    text += fmt::format("at {:.0f} GB/s these bytes take {:.2f} ms: no more than {:.0f} images/s\n", bandwidth,
                        1e3 * seconds, static_cast<double>(bytes.images) / seconds);
  }
  return text;
}

Json model_bytes_json(const ModelBytes& bytes) {
  Json json{{"backend", bytes.backend},
            {"images", bytes.images},
            {"bytes_per_image", bytes.bytes_per_image()},
            {"least_bytes_per_image", bytes.per_image(bytes.total.forward.least + bytes.total.backward.least)},
            {"graph_nodes", bytes.nodes()},
            {"gradient_cast_bytes_per_step", bytes.gradient_casts.bytes},
            {"optimizer_bytes_per_step", bytes.optimizer.bytes},
            {"optimizer_kernels", bytes.optimizer.nodes},
            {"units", Json::array()},
            {"kinds", Json::array()}};
  for (const BytesLine& line : bytes.units) json["units"].push_back(line_json(bytes, "unit", line));
  for (const BytesLine& line : bytes.kinds) json["kinds"].push_back(line_json(bytes, "kind", line));
  return json;
}

}  // namespace convoy
