// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_costs.h"

#include <algorithm>
#include <sstream>

#include "layers/base/error.h"
#include "layers/base/random.h"
#include "parallel/stopwatch.h"

namespace convoy {

namespace {

constexpr int kLeastPasses = 3;
constexpr int kMostPasses = 25;
constexpr double kEnoughSeconds = 0.15;  // of passes, for units that are quick

double median(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  return *half;
}

// Numbers like those of activations: zeros would be too easy for some kernels.
Tensor random_tensor(Backend& backend, const Shape& shape, std::uint64_t key) {
  std::vector<float> host(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random_uniform(key, i % 65536) - 0.5);
  Tensor plain = backend.tensor(shape, DType::kF32);
  backend.copy_from_host(host.data(), plain);
  if (backend.compute_type() == DType::kF32) return plain;
  Tensor typed = backend.tensor(shape, backend.compute_type());
  backend.cast(plain, typed);
  return typed;
}

}  // namespace

UnitCost measure_unit(Backend& backend, Unit unit, const UnitInfo& info, bool first) {
  ParameterStore store(backend);
  BuildContext context{backend, store};
  unit.layer->build(context, unit.path, info.input);
  if (first) unit.layer->skip_input_gradient();
  store.finalize(0);
  store.begin_step();
  Cache cache(context.layers);
  const Tensor x = random_tensor(backend, info.input, 1);
  const Tensor dy = random_tensor(backend, info.output, 2);
  UnitCost cost;
  std::vector<double> forward, backward_input, backward_weight;
  Stopwatch whole, watch;
  double spent = 0;
  for (int pass = -1; pass < kMostPasses && (pass < kLeastPasses || spent < kEnoughSeconds); ++pass) {
    watch.lap();
    const Tensor y = unit.layer->forward(x, cache, Mode::kTraining);
    const double f = watch.lap();
    cost.cache_bytes = static_cast<double>(cache.bytes());
    watch.lap();
    unit.layer->backward_input(dy, cache);
    const double bi = watch.lap();
    unit.layer->backward_weight(cache);
    const double bw = watch.lap();
    const double lap = whole.lap();
    if (pass < 0) continue;  // the first pass makes plans and asks for memory
    spent += lap;
    forward.push_back(f);
    backward_input.push_back(bi);
    backward_weight.push_back(bw);
  }
  cost.forward = median(forward);
  cost.backward_input = median(backward_input);
  cost.backward_weight = median(backward_weight);
  cost.output_bytes = static_cast<double>(info.output.size()) * static_cast<double>(dtype_size(backend.compute_type()));
  cost.parameter_bytes = 4.0 * static_cast<double>(info.parameters());
  return cost;
}

std::string pack_costs(const std::vector<UnitCost>& costs) {
  std::string text;
  for (const UnitCost& c : costs) {
    text += fmt::format("{:.17g} {:.17g} {:.17g} {:.17g} {:.17g} {:.17g}\n", c.forward, c.backward_input,
                        c.backward_weight, c.output_bytes, c.cache_bytes, c.parameter_bytes);
  }
  return text;
}

std::vector<UnitCost> unpack_costs(const std::string& text) {
  std::vector<UnitCost> costs;
  std::istringstream lines(text);
  for (UnitCost c; lines >> c.forward >> c.backward_input >> c.backward_weight >> c.output_bytes >> c.cache_bytes >>
                   c.parameter_bytes;) {
    costs.push_back(c);
  }
  if (!lines.eof()) fail("unit costs that are no numbers: {}", text.substr(0, 80));
  return costs;
}

}  // namespace convoy
