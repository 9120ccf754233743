// SPDX-License-Identifier: Apache-2.0
//
// The models by name.
#include "layers/models/models.h"

#include <algorithm>
#include <array>

#include "layers/base/option_error.h"

namespace convoy {

namespace {

template <int kDepth>
std::vector<Unit> resnet(const ModelOptions& options, std::int64_t outputs) {
  return resnet_model(kDepth, options.stem, outputs);
}

struct Entry {
  std::string_view name;
  std::vector<Unit> (*make)(const ModelOptions& options, std::int64_t outputs);
};

constexpr auto kModels = std::to_array<Entry>({
    {"toy", [](const ModelOptions&, std::int64_t outputs) { return toy_model(outputs); }},
    {"mlp", [](const ModelOptions& options, std::int64_t outputs) { return mlp_model(options.hidden, outputs); }},
    {"resnet9", [](const ModelOptions&, std::int64_t outputs) { return resnet9_model(outputs); }},
    {"resnet18", resnet<18>},
    {"resnet34", resnet<34>},
    {"resnet50", resnet<50>},
    {"resnet101", resnet<101>},
    {"resnet152", resnet<152>},
    {"sequential", [](const ModelOptions& options, std::int64_t) { return sequential_model(options.layers); }},
});

}  // namespace

std::span<const std::string_view> model_names() {
  static const auto names = [] {
    std::array<std::string_view, kModels.size()> result;
    std::transform(kModels.begin(), kModels.end(), result.begin(), [](const Entry& entry) { return entry.name; });
    return result;
  }();
  return names;
}

std::vector<Unit> make_model(const ModelOptions& options, std::int64_t outputs) {
  for (const Entry& entry : kModels) {
    if (entry.name == options.name) return entry.make(options, outputs);
  }
  fail_option("model.name", "unknown name \"{}\" (must be one of {})", options.name, join(model_names()));
}

}  // namespace convoy
