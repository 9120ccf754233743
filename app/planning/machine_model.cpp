// SPDX-License-Identifier: Apache-2.0
#include "app/planning/machine_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "layers/base/error.h"

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
Link link_from(const Json& json) {
  return {json.at("latency").get<double>(), json.at("bytes_per_second").get<double>()};
}

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

void write_machine(const std::string& path, const MachineModel& machine) {
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
                  {"sizes", sizes}};
  std::ofstream file(path);
  file << json.dump(1) << "\n" << std::flush;
  if (!file) fail_usage("--costs: cannot write {}", path);
}

MachineModel read_machine(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail_usage("--costs: {} cannot be opened (measure first: convoy plan CONFIG --ranks N --calibrate)", path);
  try {
    const Json json = Json::parse(file);
    if (json.at("format") != kFormat) fail_usage("--costs: {} is not a file of measured costs", path);
    MachineModel m;
    m.name = json.at("name").get<std::string>();
    m.cluster.ranks_per_node = json.at("ranks_per_node").get<int>();
    m.cluster.node = link_from(json.at("node"));
    m.cluster.network = link_from(json.at("network"));
    m.cluster.node_reduce = json.at("node_reduce").get<double>();
    m.optimizer_seconds = json.at("optimizer_seconds").get<double>();
    m.input_seconds = json.at("input_seconds").get<double>();
    m.crowding = json.at("crowding").get<double>();
    m.memory_bytes = json.at("memory_bytes").get<double>();
    for (const Json& size : json.at("sizes")) {
      SizedCosts& costs = m.sizes.emplace_back(SizedCosts{size.at("samples").get<std::int64_t>(), {}});
      for (const Json& u : size.at("units")) {
        costs.units.push_back({u.at("forward").get<double>(), u.at("backward_input").get<double>(),
                               u.at("backward_weight").get<double>(), u.at("output_bytes").get<double>(),
                               u.at("cache_bytes").get<double>(), u.at("parameter_bytes").get<double>()});
      }
    }
    if (m.sizes.empty()) fail_usage("--costs: {} holds no measured sizes", path);
    return m;
  } catch (const Json::exception& problem) {
    fail_usage("--costs: {} is not a file of measured costs: {}", path, problem.what());
  }
}

}  // namespace convoy
