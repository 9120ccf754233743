// SPDX-License-Identifier: Apache-2.0
#include "app/planning/stated_machine.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "app/build/build_backend.h"
#include "app/build/build_model.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

// Passes over what a unit keeps (inputs of convolutions and of batch norms): forward writes and reads both, with batch
// norm, ReLU and addition in one pass; each half of backward reads them and their gradients.
constexpr double kForwardPasses = 2;
constexpr double kBackwardInputPasses = 3;
constexpr double kBackwardWeightPasses = 2;

constexpr std::int64_t kFewSamples = 2;  // batch norm wants more than one value per channel
constexpr std::int64_t kMany = 2048;     // times those: between the two, costs are a straight line

class Figures {
 public:
  explicit Figures(const std::string& path) : path_(path) {
    try {
      table_ = toml::parse_file(path);
    } catch (const toml::parse_error& error) {
      fail_usage("--machine: {}: {}", path, error.description());
    }
    check_names(table_, "",
                {"name", "ranks_per_node", "flops", "efficiency", "memory_bytes_per_second", "memory_gb",
                 "element_bytes", "unit_seconds", "overlap", "node", "network"});
    for (const char* link : {"node", "network"}) {
      if (const toml::table* part = table_[link].as_table()) {
        check_names(*part, std::string(link) + ".", {"latency", "bytes_per_second"});
      }
    }
  }

  [[nodiscard]] double number(const std::string& key) const {
    const auto value = table_.at_path(key).value<double>();
    if (!value) fail_usage("--machine: {}: {}: missing (must be a number)", path_, key);
    if (!(*value > 0)) fail_usage("--machine: {}: {}: {} is not above 0", path_, key, *value);
    return *value;
  }
  [[nodiscard]] std::string text(const std::string& key) const { return table_.at_path(key).value_or(path_); }

 private:
  void check_names(const toml::table& table, const std::string& prefix,
                   const std::vector<std::string_view>& known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      fail_usage("--machine: {}: {}{}: unknown key", path_, prefix, key.str());
    }
  }

  std::string path_;
  toml::table table_;
};

}  // namespace

MachineModel stated_machine(const std::string& path, const Config& config, const Dataset& data,
                            const DeviceChoice& device) {
  const Figures figures(path);
  const double flops = figures.number("flops") * figures.number("efficiency");
  const double bandwidth = figures.number("memory_bytes_per_second");
  const double element = figures.number("element_bytes");
  MachineModel machine;
  machine.name = "stated: " + figures.text("name");
  machine.ranks_per_node = static_cast<int>(figures.number("ranks_per_node"));
  machine.node = {figures.number("node.latency"), figures.number("node.bytes_per_second")};
  machine.network = {figures.number("network.latency"), figures.number("network.bytes_per_second")};
  machine.reduce_hidden = figures.number("overlap");
  machine.memory_bytes = 1e9 * figures.number("memory_gb");
  machine.optimizer_seconds = 6 / bandwidth;  // parameters, gradients and one slot: read and written

  const double unit_seconds = figures.number("unit_seconds");
  const auto backend = build_backend(config, device);
  const auto infos = describe_model(config, *backend, data, kFewSamples);
  std::vector<Unit> units = build_units(config, data);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < units.size(); ++i) candidates.push_back(candidate(std::move(units[i]), infos, i));
  const std::vector<UnitCost> own = measure_units(*backend, std::move(candidates));
  const auto lowest = static_cast<std::size_t>(lowest_learning(infos));
  SizedCosts few{kFewSamples, {}}, many{kFewSamples * kMany, {}};
  for (std::size_t i = 0; i < own.size(); ++i) {
    UnitCost unit = own[i];
    const double scale = element / static_cast<double>(dtype_size(backend->compute_type()));
    unit.cache_bytes *= scale;
    unit.output_bytes *= scale;
    const double compute = infos[i].flops / flops;
    const double pass = unit.cache_bytes / bandwidth;
    const auto cost = [&](double samples) {
      UnitCost c = unit;
      c.cache_bytes *= samples;
      c.output_bytes *= samples;
      c.forward = unit_seconds + samples * (compute + kForwardPasses * pass);
      if (i < lowest) return c;
      c.backward_input = unit_seconds + samples * ((i == lowest ? 0 : compute) + kBackwardInputPasses * pass);
      c.backward_weight = infos[i].frozen ? 0 : unit_seconds + samples * (compute + kBackwardWeightPasses * pass);
      return c;
    };
    few.units.push_back(cost(1));
    many.units.push_back(cost(kMany));
  }
  machine.sizes = {std::move(few), std::move(many)};
  return machine;
}

}  // namespace convoy
