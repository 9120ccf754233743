// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_model.h"

#include <algorithm>
#include <cmath>

#include "app/base/did_you_mean.h"
#include "layers/base/error.h"
#include "layers/models/models.h"

namespace convoy {

namespace {

std::vector<LayerSpec> layer_specs(const std::vector<LayerConfig>& layers) {
  std::vector<LayerSpec> specs;
  for (const LayerConfig& layer : layers) {
    const std::int64_t outputs = std::max({layer.out_features, layer.out_channels, layer.channels});
    specs.push_back({std::string(to_string(layer.type)), layer.name, outputs,
                     std::max<std::int64_t>(1, layer.kernel_size), layer.stride, layer.padding, layer.bias});
  }
  return specs;
}

std::vector<Unit> fresh_units(const ModelConfig& model, std::int64_t outputs) {
  const Stem stem = model.stem == StemKind::kSmall ? Stem::kSmall : Stem::kImagenet;
  switch (model.name) {
    case ModelKind::kToy: return toy_model(outputs);
    case ModelKind::kMlp: return mlp_model(model.hidden, outputs);
    case ModelKind::kResnet18: return resnet_model(18, stem, outputs);
    case ModelKind::kResnet34: return resnet_model(34, stem, outputs);
    case ModelKind::kResnet50: return resnet_model(50, stem, outputs);
    case ModelKind::kResnet101: return resnet_model(101, stem, outputs);
    case ModelKind::kResnet152: return resnet_model(152, stem, outputs);
    case ModelKind::kSequential: return sequential_model(layer_specs(model.layers));
  }
  fail("model.name: unknown");
}

// A name stands for the unit of that name and for all units below it: "layer1" for layer1.0, layer1.1, ...
void freeze_units(std::vector<Unit>& units, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    bool found = false;
    for (Unit& unit : units) {
      if (unit.name != name && !unit.name.starts_with(name + ".")) continue;
      unit.frozen = found = true;
    }
    if (found) continue;
    std::vector<std::string_view> known;
    known.reserve(units.size());
    for (const Unit& unit : units) known.emplace_back(unit.name);
    std::vector<std::string_view> meant = known;
    for (const std::string_view unit : known) meant.push_back(unit.substr(0, unit.find('.')));
    const std::string near = did_you_mean(name, meant);
    fail_usage("model.freeze: no unit \"{}\"{} (units: {})", name,
               near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near), join(known));
  }
  if (std::all_of(units.begin(), units.end(), [](const Unit& unit) { return unit.frozen; })) {
    fail_usage("model.freeze: names every unit: there is nothing to train (leave out one, such as \"{}\")",
               units.back().name);
  }
}

}  // namespace

std::int64_t output_size(const Config& config, const Dataset& data) {
  if (data.target_size() > 0) return data.target_size();
  if (config.model.name == ModelKind::kToy) return 5;
  return config.model.classes > 0 ? config.model.classes : data.classes();
}

std::vector<Unit> build_units(const Config& config, const Dataset& data) {
  return build_units(config, output_size(config, data));
}

std::vector<Unit> build_units(const Config& config, std::int64_t outputs) {
  std::vector<Unit> units = fresh_units(config.model, outputs);
  freeze_units(units, config.model.freeze);
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
    throw Error(fmt::format("{}: {}: {}", key, size, error.what()), ExitCode::kUsage);
  }
}

void check_outputs(const Config& config, const Dataset& data, const Shape& output) {
  const std::int64_t wanted = output_size(config, data);
  if (output.rank() == 2 && output[1] == wanted) return;
  fail_usage("model: its output is {}, but the data has {} {} (make the last layer put out that many)", output.str(),
             wanted, data.target_size() > 0 ? "targets" : "classes");
}

OptimizerSpec optimizer_spec(const OptimizerConfig& c) {
  OptimizerSpec spec;
  if (c.name == OptimizerKind::kAdamw) spec.kind = OptimizerSpec::Kind::kAdamw;
  if (c.name == OptimizerKind::kLars) spec.kind = OptimizerSpec::Kind::kLars;
  spec.momentum = static_cast<float>(c.momentum);
  spec.nesterov = c.nesterov;
  spec.weight_decay = static_cast<float>(c.weight_decay);
  spec.beta1 = c.betas[0];
  spec.beta2 = c.betas[1];
  spec.epsilon = static_cast<float>(c.epsilon);
  spec.trust = static_cast<float>(c.trust);
  return spec;
}

double optimizer_slots(const OptimizerConfig& config) { return config.name == OptimizerKind::kAdamw ? 2 : 1; }

LrSchedule lr_schedule(const Config& config, std::int64_t steps_per_epoch, std::int64_t total_steps) {
  const LrScheduleConfig& c = config.lr_schedule;
  const auto steps = [&](double epochs) { return std::llround(epochs * static_cast<double>(steps_per_epoch)); };
  LrSchedule schedule;
  switch (c.name) {
    case LrScheduleKind::kConstant: break;
    case LrScheduleKind::kStep: schedule.kind = LrSchedule::Kind::kStep; break;
    case LrScheduleKind::kCosine: schedule.kind = LrSchedule::Kind::kCosine; break;
    case LrScheduleKind::kPolynomial: schedule.kind = LrSchedule::Kind::kPolynomial; break;
  }
  schedule.lr = config.optimizer.lr;
  schedule.final_lr = c.final_lr;
  schedule.total_steps = total_steps;
  schedule.warmup_steps = steps(c.warmup_epochs);
  for (const double epoch : c.milestones) schedule.milestones.push_back(steps(epoch));
  schedule.gamma = c.gamma;
  schedule.power = c.power;
  return schedule;
}

Loss build_loss(const TrainConfig& config) {
  return {config.loss == LossKind::kMse ? Loss::Kind::kMse : Loss::Kind::kCrossEntropy,
          static_cast<float>(config.label_smoothing)};
}

Normalization normalization(const DataConfig& data) {
  return {{data.mean.begin(), data.mean.end()}, {data.std.begin(), data.std.end()}};
}

}  // namespace convoy
