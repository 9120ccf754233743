// SPDX-License-Identifier: Apache-2.0
//
// One function per subject; each names the key to change.
#include "app/build/config_checks.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "app/base/expand_variables.h"
#include "app/build/build_model.h"
#include "layers/backend/cuda_devices.h"
#include "layers/base/error.h"
#include "parallel/schedule/schedule.h"

namespace convoy {

namespace {

using Place = std::function<std::string(std::string_view)>;

/// Throws "PLACE: key: problem" when `wrong`.
template <class... Args>
void refuse_if(bool wrong, const Place& place, std::string_view key, fmt::format_string<Args...> format,
               Args&&... args) {
  if (wrong) fail_usage("{}: {}: {}", place(key), key, fmt::format(format, std::forward<Args>(args)...));
}

template <class Number>
void check_rising(const std::vector<Number>& epochs, const Place& place, std::string_view key) {
  const bool rising = std::adjacent_find(epochs.begin(), epochs.end(), std::greater_equal<>()) == epochs.end();
  refuse_if(!rising, place, key, "[{}] is not rising (list each epoch once, in order)", fmt::join(epochs, ", "));
}

bool is_resnet(ModelKind kind) { return kind >= ModelKind::kResnet18 && kind <= ModelKind::kResnet152; }

void check_run(const Config& c, const Place& place) {
  const std::string& name = c.run.name;
  const bool bad = name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos;
  refuse_if(bad, place, "run.name", "\"{}\" cannot be a folder's name (use letters, digits, '-', '_' and '.')", name);
  refuse_if(c.run.dir.empty(), place, "run.dir", "is empty (\".\" is the current folder)");
}

void check_device(const Config& c, const Place& place) {
  refuse_if(c.device.kind == DeviceKind::kCuda && !kCudaBuilt, place, "device.kind",
            "this build has no CUDA backend (use \"cpu\" or \"auto\")");
  const bool on_cpu = c.device.kind == DeviceKind::kCpu || !kCudaBuilt;  // else choose_device() finds out
  const PrecisionKind precision = c.train.precision;
  refuse_if(on_cpu && (precision == PrecisionKind::kTf32 || precision == PrecisionKind::kFp16), place,
            "train.precision", "\"{}\" needs a CUDA device (on the CPU: fp32 or bf16)", to_string(precision));
}

void check_layers(const Config& c, const Place& place) {
  if (c.model.name != ModelKind::kSequential) return;
  refuse_if(c.model.layers.empty(), place, "model.layers", "missing (a sequential model needs [[model.layers]])");
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < c.model.layers.size(); ++i) {
    const std::string& name = c.model.layers[i].name;
    const std::string key = fmt::format("model.layers[{}].name", i);
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
      return std::isalnum(letter) || letter == '_' || letter == '-';
    });
    refuse_if(!plain, place, key, "\"{}\" cannot be a layer's name (use letters, digits, '-' and '_')", name);
    refuse_if(!names.insert(name).second, place, key, "\"{}\" is the name of an earlier layer too (names must differ)",
              name);
  }
}

void check_freeze(const Config& c, const Place& place) {
  if (c.model.freeze.empty()) return;
  try {
    static_cast<void>(build_units(c, 1));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", place("model.freeze"), error.what()), ExitCode::kUsage);
  }
}

void check_model_and_data(const Config& c, const Place& place) {
  const DataConfig& d = c.data;
  const bool synthetic = d.kind == DataKind::kSynthetic;
  const bool vectors = synthetic && d.features > 0, regression = synthetic && d.targets > 0;
  refuse_if(is_resnet(c.model.name) && vectors, place, "data.features",
            "{} takes images (leave it out, or use mlp or sequential)", to_string(c.model.name));
  if (c.model.name == ModelKind::kToy) {
    refuse_if(synthetic && d.features != 10, place, "data.features", "{} (toy takes vectors of 10)", d.features);
    refuse_if(regression && d.targets != 5, place, "data.targets", "{} (toy puts out 5)", d.targets);
    refuse_if(c.model.classes != 0 && c.model.classes != 5, place, "model.classes", "{} (toy puts out 5)",
              c.model.classes);
  }
  refuse_if(regression && c.model.classes != 0, place, "model.classes",
            "means nothing with data.targets (leave it out: the output is as long as the targets)");
  refuse_if(regression && c.train.loss == LossKind::kCrossEntropy, place, "train.loss",
            "cross_entropy needs class labels, but data.targets asks for float targets (use mse, or leave data.targets "
            "out)");
  refuse_if(synthetic && !regression && c.model.classes == 0 && c.model.name != ModelKind::kToy, place, "model.classes",
            "missing (synthetic labels need the number of classes)");
  const auto fits = [&](const std::vector<double>& values) {
    return values.size() == 1 || d.channels == 0 || static_cast<std::int64_t>(values.size()) == d.channels;
  };
  if (!vectors) {
    refuse_if(!fits(d.mean), place, "data.mean", "{} values for {} channels (give one for all, or one each)",
              d.mean.size(), d.channels);
    refuse_if(!fits(d.std), place, "data.std", "{} values for {} channels (give one for all, or one each)",
              d.std.size(), d.channels);
  }
}

// What has parameters that depend on the size of images; empty: nothing.
std::string sized_part(const ModelConfig& model) {
  if (model.name == ModelKind::kToy || model.name == ModelKind::kMlp) return std::string(to_string(model.name));
  for (const LayerConfig& layer : model.layers) {
    if (layer.type == LayerKind::kGlobalAvgPool) break;
    if (layer.type == LayerKind::kLinear || layer.type == LayerKind::kFlatten) {
      return fmt::format("the layer \"{}\"", layer.name);
    }
  }
  return "";
}

void check_sizes(const Config& c, const Place& place) {
  const DataConfig& d = c.data;
  if (d.train_sizes.empty()) return;
  refuse_if(d.size_milestones.size() + 1 != d.train_sizes.size(), place, "data.size_milestones",
            "{} epochs for {} sizes in data.train_sizes (one fewer than sizes: the first begins with the run)",
            d.size_milestones.size(), d.train_sizes.size());
  check_rising(d.size_milestones, place, "data.size_milestones");
  const std::string part = sized_part(c.model);
  refuse_if(!part.empty(), place, "data.train_sizes",
            "{} takes images of one size (use a resnet, or global_avg_pool before the first flatten and linear)", part);
}

void check_staging(const Config& c, const Place& place) {
  const DataConfig& d = c.data;
  refuse_if(d.kind == DataKind::kImageFolder && !d.stage_dir.empty(), place, "data.stage_dir",
            "does not copy folders of images (pack it with `convoy pack` and train on that: data.kind = \"hdf5\")");
  try {  // the values are those of the nodes
    static_cast<void>(expand_variables(d.stage_dir, [](const std::string& name) { return name; }));
  } catch (const Error& error) {
    refuse_if(true, place, "data.stage_dir", "{}", error.what());
  }
}

void check_augmentation(const Config& c, const Place& place) {
  const DataConfig& d = c.data;
  for (std::size_t i = 0; i < d.augment.size(); ++i) {
    refuse_if(std::count(d.augment.begin(), d.augment.end(), d.augment[i]) > 1, place, "data.augment",
              "\"{}\" is there twice (list each once)", d.augment[i]);
  }
  const auto [least, most] = d.crop_area;
  refuse_if(least <= 0 || least > most, place, "data.crop_area", "[{}, {}] (the smaller share first, above 0)", least,
            most);
  refuse_if(d.crop_ratio[0] > d.crop_ratio[1], place, "data.crop_ratio", "[{}, {}] (the smaller one first)",
            d.crop_ratio[0], d.crop_ratio[1]);
  refuse_if(d.jitter.size() != 3, place, "data.jitter", "has {} items (three: brightness, contrast, saturation)",
            d.jitter.size());
  refuse_if(d.kind == DataKind::kImageFolder && d.channels == 2, place, "data.channels", "2 (3: RGB, or 1: grey)");
  refuse_if(d.kind == DataKind::kImageFolder && d.resize > 0 && d.resize < d.image_size, place, "data.resize",
            "{} is smaller than data.image_size, {} (at least that, or 0)", d.resize, d.image_size);
}

void check_training(const Config& c, const Place& place) {
  const TrainConfig& t = c.train;
  refuse_if(!t.epochs && !t.steps, place, "train.epochs", "missing (give train.epochs or train.steps)");
  refuse_if(t.epochs && t.steps, place, "train.steps", "given beside train.epochs (give one of the two)");
  refuse_if(c.data.kind == DataKind::kSynthetic && c.data.drop_last && c.data.samples < t.global_batch_size, place,
            "data.samples", "{} samples do not fill one batch of {} (give at least that many, or drop_last = false)",
            c.data.samples, t.global_batch_size);
  const std::string problem = batch_problem(t.global_batch_size, 1, c.parallel.microbatches);
  if (!problem.empty()) fail_usage("{}: {}, for one replica", place("train.global_batch_size"), problem);
}

void check_optimizer(const Config& c, const Place& place) {
  const OptimizerConfig& o = c.optimizer;
  refuse_if(o.name == OptimizerKind::kSgd && o.nesterov && o.momentum == 0, place, "optimizer.nesterov",
            "needs momentum (set optimizer.momentum above 0)");
  const LrScheduleConfig& s = c.lr_schedule;
  const bool falls = s.name == LrScheduleKind::kCosine || s.name == LrScheduleKind::kPolynomial;
  refuse_if(falls && s.final_lr > o.lr, place, "lr_schedule.final_lr", "{} is above optimizer.lr, {} (the rate falls)",
            s.final_lr, o.lr);
  if (s.name == LrScheduleKind::kStep) check_rising(s.milestones, place, "lr_schedule.milestones");
}

// What the schedule asks for. How many stages there are is known here only when the config says so.
void check_parallel(const Config& c, const Place& place) {
  const ParallelConfig& p = c.parallel;
  refuse_if(p.mode == ParallelMode::kScatter && !c.data.drop_last, place, "data.drop_last",
            "false leaves batches that scatter mode cannot deal out in equal parts (set it to true, or use "
            "parallel.mode = \"data\")");
  refuse_if(p.partition.first_units.size() == 1 && p.stages != 1, place, "parallel.partition",
            "names one unit (name the first unit of each stretch of layers, from the first on)");
  if (p.stages == 0) return;
  const ScheduleChoice choice = schedule_choice(p, static_cast<int>(p.stages));
  try {
    static_cast<void>(make_schedule(choice.name, choice.stages, choice.microbatches, choice.chunks));
  } catch (const Error& error) {
    const std::string_view words = error.what();
    throw Error(fmt::format("{}: {}", place(words.substr(0, words.find(':'))), words), ExitCode::kUsage);
  }
  const auto stretches = static_cast<std::size_t>(choice.stages) * static_cast<std::size_t>(choice.chunks);
  refuse_if(!p.partition.first_units.empty() && p.partition.first_units.size() != stretches, place,
            "parallel.partition", "names {} units for {} stages of {} stretches of layers each (name {})",
            p.partition.first_units.size(), choice.stages, choice.chunks, stretches);
}

}  // namespace

ScheduleChoice schedule_choice(const ParallelConfig& parallel, int stages) {
  const int microbatches = static_cast<int>(parallel.microbatches);
  switch (parallel.mode) {
    case ParallelMode::kData:
    case ParallelMode::kScatter: return {"one_stage", 1, microbatches, 1};
    case ParallelMode::kModel: return {"model", stages, 1, 1};
    case ParallelMode::kPipeline: break;
  }
  int chunks = 1;
  if (parallel.schedule == PipelineSchedule::kInterleaved) chunks = static_cast<int>(parallel.chunks);
  if (parallel.schedule == PipelineSchedule::kZbV) chunks = 2;
  return {to_string(parallel.schedule), stages, microbatches, chunks};
}

void check_config(const Config& config, const Place& place) {
  check_run(config, place);
  check_device(config, place);
  check_layers(config, place);
  check_freeze(config, place);
  check_model_and_data(config, place);
  check_sizes(config, place);
  check_staging(config, place);
  check_augmentation(config, place);
  check_training(config, place);
  check_optimizer(config, place);
  check_parallel(config, place);
}

}  // namespace convoy
