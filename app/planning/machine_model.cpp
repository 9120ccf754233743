// SPDX-License-Identifier: Apache-2.0
#include "app/planning/machine_model.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/message_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "convoy-costs";

UnitCost mix(const UnitCost& a, const UnitCost& b, double share) {
  const auto line = [&](double x, double y) { return x + share * (y - x); };
  return {std::max(0.0, line(a.forward, b.forward)),
          std::max(0.0, line(a.backward_input, b.backward_input)),
          std::max(0.0, line(a.backward_weight, b.backward_weight)),
          line(a.output_bytes, b.output_bytes),
          line(a.cache_bytes, b.cache_bytes),
          a.parameter_bytes};
}

UnitCost times(const UnitCost& a, double factor) {
  return {factor * a.forward,      factor * a.backward_input, factor * a.backward_weight,
          factor * a.output_bytes, factor * a.cache_bytes,    a.parameter_bytes};
}

Json link_json(const Link& link) { return {{"latency", link.latency}, {"bytes_per_second", link.bytes_per_second}}; }

class CostReader {
 public:
  explicit CostReader(const std::string& path) : path_(path) {}

  MachineModel machine(const MeasuredModel& model) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) {
      fail_usage("--costs: {} is a folder (name a file of measured costs)", path_);
    }
    const std::optional<std::string> text = file_text(path_);
    if (!text) {
      fail_system(errno, "--costs: {} cannot be opened: {} (measure first: convoy plan CONFIG --ranks N --calibrate)",
                  path_, std::strerror(errno));
    }
    try {
      const Json json = Json::parse(*text);
      if (json.at("format") != kFormat) fail_usage("--costs: {} is not a file of measured costs", path_);
      check_model(json, model);
      return read(json, model);
    } catch (const Json::exception& problem) {
      fail_usage("--costs: {} is not a file of measured costs: {}", path_, problem.what());
    }
  }

 private:
  // The words say what is wrong with the file.
  [[noreturn]] void refuse(const std::string& words) const {
    fail_usage("--costs: {}: {} (measure again: --calibrate)", path_, words);
  }

  void check_model(const Json& json, const MeasuredModel& model) const {
    if (!json.contains("model") || !json.contains("precision")) refuse("does not say for which model it was measured");
    const auto precision = json["precision"].get<std::string>();
    if (precision != model.precision) {
      refuse(fmt::format("measured in {}, and train.precision is {}", name_text(precision), model.precision));
    }
    const Json& units = json["model"];
    if (units.size() != model.units.size()) {
      refuse(fmt::format("measured for a model of {}, and this one has {}", counted(units.size(), "unit"),
                         model.units.size()));
    }
    for (std::size_t i = 0; i < units.size(); ++i) {
      const std::string there =
          unit_text({units[i].at("name").get<std::string>(), units[i].at("outputs").get<std::int64_t>(),
                     units[i].at("parameters").get<std::int64_t>()});
      const std::string here = unit_text(model.units[i]);
      if (there != here) refuse(fmt::format("measured for another model: unit {} is {}, here {}", i, there, here));
    }
  }

  static std::string unit_text(const MeasuredModel::Unit& unit) {
    return fmt::format("{} of {} and {} of a sample", name_text(unit.name), counted(unit.parameters, "parameter"),
                       counted(unit.outputs, "output"));
  }

  MachineModel read(const Json& json, const MeasuredModel& model) const {
    MachineModel m;
    m.name = json.at("name").get<std::string>();
    m.measured = model;
    m.cluster.ranks_per_node = static_cast<int>(whole(json, "ranks_per_node", 0, std::numeric_limits<int>::max()));
    m.cluster.node = link(json, "node");
    m.cluster.network = link(json, "network");
    m.cluster.node_reduce = number(json, "node_reduce");
    m.optimizer_seconds = number(json, "optimizer_seconds");
    m.input_seconds = number(json, "input_seconds");
    m.crowding = number(json, "crowding");
    if (m.crowding == 0) refuse("crowding: 0 is not above 0");
    m.memory_bytes = number(json, "memory_bytes");
    for (const Json& size : json.at("sizes")) {
      const std::int64_t least = m.sizes.empty() ? 1 : m.sizes.back().samples + 1;  // they rise
      SizedCosts& costs = m.sizes.emplace_back();
      costs.samples = whole(size, "samples", least, std::numeric_limits<std::int64_t>::max());
      for (const Json& u : size.at("units")) {
        costs.units.push_back({number(u, "forward"), number(u, "backward_input"), number(u, "backward_weight"),
                               number(u, "output_bytes"), number(u, "cache_bytes"), number(u, "parameter_bytes")});
      }
      if (costs.units.size() != model.units.size()) {
        refuse(fmt::format("{} for {} of the model's {}", costs.units.size(), counted(costs.samples, "sample"),
                           counted(model.units.size(), "unit")));
      }
    }
    if (m.sizes.empty()) refuse("holds no measured sizes");
    return m;
  }

  double number(const Json& json, const char* key) const {
    const double value = json.at(key).get<double>();
    if (!std::isfinite(value) || value < 0)
      refuse(fmt::format("{}: {} is not a finite number of at least 0", key, value));
    return value;
  }

  std::int64_t whole(const Json& json, const char* key, std::int64_t least, std::int64_t most) const {
    const Json& value = json.at(key);
    if (!value.is_number_integer() || value.get<double>() > static_cast<double>(most) ||
        value.get<std::int64_t>() < least) {
      refuse(fmt::format("{}: {} is not a whole number of at least {}", key, value.dump(), least));
    }
    return value.get<std::int64_t>();
  }

  Link link(const Json& json, const char* key) const {
    return {number(json.at(key), "latency"), number(json.at(key), "bytes_per_second")};
  }

  std::string path_;
};

}  // namespace

std::vector<UnitCost> MachineModel::costs(std::int64_t samples) const {
  std::vector<UnitCost> result;
  if (sizes.empty()) {
    for (const UnitWork& unit : work->units) result.push_back(unit_cost(unit, gpu, samples));
    return result;
  }
  const auto wanted = static_cast<double>(samples);
  const auto above =
      std::find_if(sizes.begin(), sizes.end(), [&](const SizedCosts& s) { return s.samples >= samples; });
  if (above == sizes.end() || above == sizes.begin()) {
    const SizedCosts& nearest = above == sizes.end() ? sizes.back() : sizes.front();
    for (const UnitCost& unit : nearest.units)
      result.push_back(times(unit, wanted / static_cast<double>(nearest.samples)));
    return result;
  }
  const SizedCosts& below = *(above - 1);
  const double share =
      static_cast<double>(samples - below.samples) / static_cast<double>(above->samples - below.samples);
  for (std::size_t i = 0; i < below.units.size(); ++i) result.push_back(mix(below.units[i], above->units[i], share));
  return result;
}

std::string machine_json(const MachineModel& machine) {
  Json model = Json::array();
  for (const MeasuredModel::Unit& unit : machine.measured.units) {
    model.push_back({{"name", unit.name}, {"outputs", unit.outputs}, {"parameters", unit.parameters}});
  }
  Json sizes = Json::array();
  for (const SizedCosts& size : machine.sizes) {
    Json units = Json::array();
    for (const UnitCost& u : size.units) {
      units.push_back({{"forward", u.forward},
                       {"backward_input", u.backward_input},
                       {"backward_weight", u.backward_weight},
                       {"output_bytes", u.output_bytes},
                       {"cache_bytes", u.cache_bytes},
                       {"parameter_bytes", u.parameter_bytes}});
    }
    sizes.push_back({{"samples", size.samples}, {"units", units}});
  }
  const Json json{{"format", kFormat},
                  {"name", machine.name},
                  {"ranks_per_node", machine.cluster.ranks_per_node},
                  {"node", link_json(machine.cluster.node)},
                  {"network", link_json(machine.cluster.network)},
                  {"node_reduce", machine.cluster.node_reduce},
                  {"optimizer_seconds", machine.optimizer_seconds},
                  {"input_seconds", machine.input_seconds},
                  {"crowding", machine.crowding},
                  {"memory_bytes", machine.memory_bytes},
                  {"precision", machine.measured.precision},
                  {"model", model},
                  {"sizes", sizes}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

MachineModel read_machine(const std::string& path, const MeasuredModel& model) {
  return CostReader(path).machine(model);
}

}  // namespace convoy
