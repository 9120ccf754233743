// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "layers/base/did_you_mean.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/models/models.h"

namespace convoy {

namespace {

// Calls `found` for the units that the option `key` names. A name stands for the unit of that name and for all units
// below it: "layer1" for layer1.0, layer1.1, ...
void find_units(const std::vector<Unit>& units, const std::vector<std::string>& names, const char* key,
                const std::function<void(std::size_t unit)>& found) {
  for (const std::string& name : names) {
    bool known_name = false;
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (units[i].name != name && !units[i].name.starts_with(name + ".")) continue;
      found(i);
      known_name = true;
    }
    if (known_name) continue;
    std::vector<std::string_view> known;
    known.reserve(units.size());
    for (const Unit& unit : units) known.emplace_back(unit.name);
    std::vector<std::string_view> meant = known;
    for (const std::string_view unit : known) meant.push_back(unit.substr(0, unit.find('.')));
    const std::string near = did_you_mean(name, meant);
    fail_option(key, "no unit \"{}\"{} (units: {})", name,
                near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near), join(known));
  }
}

void freeze_units(std::vector<Unit>& units, const std::vector<std::string>& names) {
  find_units(units, names, "model.freeze", [&](std::size_t i) { units[i].frozen = true; });
  if (std::all_of(units.begin(), units.end(), [](const Unit& unit) { return unit.frozen; })) {
    fail_option("model.freeze", "names every unit: there is nothing to train (leave out one, such as \"{}\")",
                units.back().name);
  }
}

void recompute_units(std::vector<Unit>& units, const RecomputeOptions& options) {
  if (options.blocks) recompute_blocks(units);
  if (options.units.empty()) return;
  std::vector<bool> chosen(units.size());
  find_units(units, options.units, "model.recompute", [&](std::size_t i) {
    if (chosen[i]) {
      fail_option("model.recompute", "names the unit \"{}\" twice (name it once, by itself or as a part of another)",
                  units[i].name);
    }
    chosen[i] = true;
  });
  recompute_chosen(units, chosen);
}

}  // namespace

std::int64_t output_size(const Config& config, const Dataset& data) {
  if (data.target_size() > 0) return data.target_size();
  if (config.model.name == "toy") return 5;
  return config.model.classes > 0 ? config.model.classes : data.classes();
}

std::vector<Unit> build_units(const Config& config, const Dataset& data) {
  return build_units(config, output_size(config, data));
}

std::vector<Unit> build_units(const Config& config, std::int64_t outputs) {
  std::vector<Unit> units = make_model(config.model, outputs);
  freeze_units(units, config.model.freeze);
  recompute_units(units, config.model.recompute);
  return units;
}

Shape microbatch_shape(const Dataset& data, std::int64_t samples) {
  const Shape sample = data.sample_shape();
  return sample.rank() == 3 ? Shape{samples, sample[0], sample[1], sample[2]} : Shape{samples, sample[0]};
}

std::vector<UnitInfo> describe_model(const Config& config, Backend& backend, const Dataset& data,
                                     std::int64_t samples) {
  for (const std::int64_t size : config.data.train_sizes) {
    check_image_size(config, backend, data, size, "data.train_sizes");
  }
  return describe_units(backend, build_units(config, data), microbatch_shape(data, samples));
}

void check_image_size(const Config& config, Backend& backend, const Dataset& data, std::int64_t size, const char* key) {
  try {
    static_cast<void>(describe_units(backend, build_units(config, data), {1, data.sample_shape()[0], size, size}));
  } catch (const Error& error) {
    fail_option(key, "{}: {}", size, error.what());
  }
}

void check_outputs(const Config& config, const Dataset& data, const Shape& output) {
  const std::int64_t wanted = output_size(config, data);
  if (output.rank() == 2 && output[1] == wanted) return;
  fail_option("model", "its output is {}, but the data has {} {} (make the last layer put out that many)", output.str(),
              wanted, data.target_size() > 0 ? "targets" : "classes");
}

LrSchedule lr_schedule(const Config& config, std::int64_t steps_per_epoch, std::int64_t total_steps) {
  return {config.lr_schedule, config.optimizer.lr, steps_per_epoch, total_steps};
}

Normalization normalization(const DataOptions& data) {
  return {{data.mean.begin(), data.mean.end()}, {data.std.begin(), data.std.end()}};
}

}  // namespace convoy
