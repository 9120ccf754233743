// SPDX-License-Identifier: Apache-2.0
//
// One function per subject; each names the key to change.
#include "app/build/config_checks.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/base/expand_variables.h"
#include "app/build/build_model.h"
#include "io/data/datasets.h"
#include "layers/backend/cuda_devices.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/message_text.h"
#include "layers/base/option_error.h"

namespace convoy {

namespace {

/// Throws an OptionError when `wrong`.
template <class... Args>
void refuse_if(bool wrong, std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (wrong) fail_option(key, format, std::forward<Args>(args)...);
}

template <class Number>
void check_rising(const std::vector<Number>& epochs, std::string_view key) {
  const bool rising = std::adjacent_find(epochs.begin(), epochs.end(), std::greater_equal<>()) == epochs.end();
  refuse_if(!rising, key, "[{}] is not rising (list each epoch once, in order)", fmt::join(epochs, ", "));
}

void check_run(const Config& c) {
  const std::string& name = c.run.name;
  const bool bad = name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
                   name_text(name) != name;  // also what is not UTF-8
  refuse_if(bad, "run.name", "\"{}\" cannot be a folder's name (use letters, digits, '-', '_' and '.')", name);
  refuse_if(c.run.dir.empty(), "run.dir", "is empty (\".\" is the current folder)");
}

// That a path's variables are names; the values are those of the nodes.
void check_variables(const char* key, const std::string& path) {
  try {
    static_cast<void>(expand_variables(path, [](const std::string& name) { return name; }));
  } catch (const Error& error) {
    refuse_if(true, key, "{}", error.what());
  }
}

void check_log(const Config& c) {
  const std::string& file = c.log.prometheus;
  refuse_if(!file.empty() && !file.ends_with(".prom"), "log.prometheus",
            "\"{}\" does not end in .prom (the textfile collector reads no other files)", file);
}

void check_device(const Config& c) {
  refuse_if(c.device.kind == DeviceKind::kCuda && !kCudaBuilt, "device.kind",
            "this build has no CUDA backend (use \"cpu\" or \"auto\")");
  const bool on_cpu = c.device.kind == DeviceKind::kCpu || !kCudaBuilt;  // else choose_device() finds out
  const Precision precision = c.train.precision;
  refuse_if(on_cpu && (precision == Precision::kTf32 || precision == Precision::kFp16), "train.precision",
            "\"{}\" needs a CUDA device (on the CPU: fp32 or bf16)", to_string(precision));
}

void check_layers(const Config& c) {
  if (c.model.name != "sequential") return;
  refuse_if(c.model.layers.empty(), "model.layers", "missing (a sequential model needs [[model.layers]])");
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < c.model.layers.size(); ++i) {
    const std::string& name = c.model.layers[i].name;
    const std::string key = fmt::format("model.layers[{}].name", i);
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
      return std::isalnum(letter) || letter == '_' || letter == '-';
    });
    refuse_if(!plain, key, "\"{}\" cannot be a layer's name (use letters, digits, '-' and '_')", name);
    refuse_if(!names.insert(name).second, key, "\"{}\" is the name of an earlier layer too (names must differ)", name);
  }
}

void check_weights(const Config& c) {
  const std::string& file = c.model.weights;
  const bool torch = file.ends_with(".pth") || file.ends_with(".pt") || file.ends_with(".safetensors");
  refuse_if(torch, "model.weights", "{} is no HDF5 file (convert it: scripts/torch_interop.py {} weights.h5)", file,
            file);
}

// build_units() checks the names.
void check_units(const Config& c) {
  if (!c.model.freeze.empty() || !c.model.recompute.units.empty()) static_cast<void>(build_units(c, 1));
}

void check_model_and_data(const Config& c) {
  const DataOptions& d = c.data;
  const bool synthetic = d.kind == "synthetic";
  const bool vectors = synthetic && d.features > 0, regression = synthetic && d.targets > 0;
  refuse_if(c.model.is_resnet() && vectors, "data.features", "{} takes images (leave it out, or use mlp or sequential)",
            c.model.name);
  if (c.model.name == "toy") {
    refuse_if(synthetic && d.features != 10, "data.features", "{} (toy takes vectors of 10)", d.features);
    refuse_if(regression && d.targets != 5, "data.targets", "{} (toy puts out 5)", d.targets);
    refuse_if(c.model.classes != 0 && c.model.classes != 5, "model.classes", "{} (toy puts out 5)", c.model.classes);
  }
  refuse_if(regression && c.model.classes != 0, "model.classes",
            "is ignored with data.targets (leave it out: the output is as long as the targets)");
  refuse_if(regression && c.train.loss.kind == Loss::Kind::kCrossEntropy, "train.loss",
            "cross_entropy needs class labels, but data.targets asks for float targets (use mse or l1, or leave "
            "data.targets out)");
  refuse_if(regression && c.train.loss.kind == Loss::Kind::kBce, "train.loss",
            "bce needs class labels or targets from 0 to 1, but data.targets asks for others (use mse or l1, or leave "
            "data.targets out)");
  refuse_if(synthetic && !regression && c.model.classes == 0 && c.model.name != "toy", "model.classes",
            "missing (synthetic labels need the number of classes)");
  const auto fits = [&](const std::vector<double>& values) {
    return values.size() == 1 || d.channels == 0 || static_cast<std::int64_t>(values.size()) == d.channels;
  };
  if (!vectors) {
    refuse_if(!fits(d.mean), "data.mean", "{} values for {} channels (give one for all, or one each)", d.mean.size(),
              d.channels);
    refuse_if(!fits(d.std), "data.std", "{} values for {} channels (give one for all, or one each)", d.std.size(),
              d.channels);
  }
}

// What has parameters that depend on the size of images; empty: nothing.
std::string sized_part(const ModelOptions& model) {
  if (model.name == "toy" || model.name == "mlp") return model.name;
  for (const LayerOptions& layer : model.layers) {
    if (std::holds_alternative<GlobalAvgPoolOptions>(layer.layer)) break;
    if (std::holds_alternative<GlobalMaxPoolOptions>(layer.layer)) break;
    if (std::holds_alternative<LinearOptions>(layer.layer) || std::holds_alternative<FlattenOptions>(layer.layer)) {
      return fmt::format("the layer \"{}\"", layer.name);
    }
  }
  return "";
}

void check_sizes(const Config& c) {
  const DataOptions& d = c.data;
  if (d.train_sizes.empty()) return;
  refuse_if(d.size_milestones.size() + 1 != d.train_sizes.size(), "data.size_milestones",
            "{} for {} in data.train_sizes (one fewer than sizes: the first applies from the start)",
            counted(d.size_milestones.size(), "epoch"), counted(d.train_sizes.size(), "size"));
  check_rising(d.size_milestones, "data.size_milestones");
  const std::string part = sized_part(c.model);
  refuse_if(!part.empty(), "data.train_sizes",
            "{} takes images of one size (use a resnet, or global_avg_pool before the first flatten and linear)", part);
}

void check_staging(const Config& c) {
  const DataOptions& d = c.data;
  refuse_if(!can_stage(d.kind) && !d.stage_dir.empty(), "data.stage_dir",
            "does not copy folders of images (pack it with `convoy pack` and train on that: data.kind = \"hdf5\")");
  check_variables("data.stage_dir", d.stage_dir);
}

void check_augmentation(const Config& c) {
  const DataOptions& d = c.data;
  for (std::size_t i = 0; i < d.augment.size(); ++i) {
    refuse_if(std::count(d.augment.begin(), d.augment.end(), d.augment[i]) > 1, "data.augment",
              "\"{}\" is there twice (list each once)", d.augment[i]);
  }
  refuse_if(d.augments("trivial") && d.augments("rand"), "data.augment",
            "has \"trivial\" and \"rand\" (one of the two policies)");
  if (d.augments("repeated")) {
    refuse_if(d.augment.size() == 1, "data.augment",
              "\"repeated\" alone repeats equal samples (add crop, flip or another random change)");
    refuse_if(
        !d.shuffle, "data.shuffle",
        "false with \"repeated\" in data.augment: every epoch would have the same first 1/{} of the samples (true)",
        d.repeated_times);
    refuse_if(d.sampler == "balanced", "data.sampler",
              "\"balanced\" draws samples several times already (leave \"repeated\" out of data.augment)");
  }
  const auto [least, most] = d.crop_area;
  refuse_if(least <= 0 || least > most, "data.crop_area", "[{}, {}] (the smaller share first, above 0)", least, most);
  refuse_if(d.crop_ratio[0] > d.crop_ratio[1], "data.crop_ratio", "[{}, {}] (the smaller one first)", d.crop_ratio[0],
            d.crop_ratio[1]);
  const auto [smallest, largest] = d.erase_area;
  refuse_if(smallest > largest, "data.erase_area", "[{}, {}] (the smaller share first)", smallest, largest);
  refuse_if(d.erase_ratio[0] > d.erase_ratio[1], "data.erase_ratio", "[{}, {}] (the smaller one first)",
            d.erase_ratio[0], d.erase_ratio[1]);
  for (const char* mixes : {"mixup", "cutmix"}) {
    if (!d.augments(mixes)) continue;
    const Loss::Kind loss = c.train.loss.kind;
    refuse_if(loss != Loss::Kind::kCrossEntropy && loss != Loss::Kind::kBce, "data.augment",
              "\"{}\" mixes class labels, which train.loss = \"{}\" does not take (use cross_entropy or bce)", mixes,
              to_string(loss));
    refuse_if(c.train.global_batch_size < 2, "data.augment",
              "\"{}\" with a batch of one: there is no other sample (set train.global_batch_size to 2 or more)", mixes);
  }
  refuse_if(!d.class_weights.empty() && c.train.loss.kind != Loss::Kind::kCrossEntropy, "data.class_weights",
            "weighs classes in train.loss = \"cross_entropy\", not in \"{}\" (leave it out)",
            to_string(c.train.loss.kind));
  refuse_if(d.jitter.size() != 3, "data.jitter", "has {} items (three: brightness, contrast, saturation)",
            d.jitter.size());
  refuse_if(d.kind == "image_folder" && d.channels == 2, "data.channels", "2 (3: RGB, or 1: grey)");
  refuse_if(d.kind == "image_folder" && d.resize > 0 && d.resize < d.image_size, "data.resize",
            "{} is smaller than data.image_size, {} (at least that, or 0)", d.resize, d.image_size);
}

void check_training(const Config& c) {
  const TrainOptions& t = c.train;
  refuse_if(!t.epochs && !t.steps, "train.epochs", "missing (give train.epochs or train.steps)");
  refuse_if(t.epochs && t.steps, "train.steps", "given together with train.epochs (give one of the two)");
  refuse_if(c.data.kind == "synthetic" && c.data.drop_last && c.data.samples < t.global_batch_size, "data.samples",
            "{} samples do not fill one batch of {} (give at least that many, or drop_last = false)", c.data.samples,
            t.global_batch_size);
  check_batch(t.global_batch_size, 1, c.parallel.microbatches, ", for one replica");
}

void check_optimizer(const Config& c) {
  const auto* sgd = std::get_if<SgdOptions>(&c.optimizer.update);
  refuse_if(sgd != nullptr && sgd->nesterov && sgd->momentum == 0, "optimizer.nesterov",
            "needs momentum (set optimizer.momentum above 0)");
  const auto falls_to = [&](double final_lr) {
    refuse_if(final_lr > c.optimizer.lr, "lr_schedule.final_lr", "{} is above optimizer.lr, {} (the rate falls)",
              final_lr, c.optimizer.lr);
  };
  const LrScheduleOptions& schedule = c.lr_schedule;
  refuse_if(schedule.warmup_epochs > 0 && schedule.warmup_steps > 0, "lr_schedule.warmup_steps",
            "given together with lr_schedule.warmup_epochs (give one of the two)");
  const LrCurve& curve = schedule.curve;
  if (const auto* cosine = std::get_if<CosineLr>(&curve)) falls_to(cosine->final_lr);
  if (const auto* polynomial = std::get_if<PolynomialLr>(&curve)) falls_to(polynomial->final_lr);
  if (const auto* step = std::get_if<StepLr>(&curve)) check_rising(step->milestones, "lr_schedule.milestones");
}

// What the schedule requires. The number of stages is known here only when the config has it.
void check_parallel(const Config& c) {
  const ParallelOptions& p = c.parallel;
  refuse_if(p.mode == ParallelMode::kScatter && !c.data.drop_last, "data.drop_last",
            "false leaves batches that scatter mode cannot deal out in equal parts (set it to true, or use "
            "parallel.mode = \"data\")");
  refuse_if(p.partition.first_units.size() == 1 && p.stages != 1, "parallel.partition",
            "names one unit (name the first unit of each chunk, from the first on)");
  if (p.stages == 0) return;
  const ScheduleChoice choice = schedule_choice(p, static_cast<int>(p.stages));
  static_cast<void>(choice.make());
  const auto chunks = static_cast<std::size_t>(choice.stages) * static_cast<std::size_t>(choice.chunks);
  refuse_if(!p.partition.first_units.empty() && p.partition.first_units.size() != chunks, "parallel.partition",
            "names {} units for {} stages of {} chunks each (name {})", p.partition.first_units.size(), choice.stages,
            choice.chunks, chunks);
}

// What needs all classes of a sample, or all rows of a layer, in one place.
void check_shard_head(const Config& c) {
  constexpr const char* kKey = "parallel.shard_head";
  if (!c.parallel.shard_head) return;
  refuse_if(c.train.loss.kind != Loss::Kind::kCrossEntropy, kKey,
            "divides a softmax: train.loss is \"{}\" (use cross_entropy)", to_string(c.train.loss.kind));
  refuse_if(c.parallel.shard_optimizer, kKey,
            "does not work with parallel.shard_optimizer (leave one out: the head's state is divided already)");
  refuse_if(c.data.augmentation().mixes() || !c.data.class_weights.empty(), kKey,
            "needs one label a sample: leave mixup, cutmix and data.class_weights out");
  const std::string_view optimizer = c.optimizer.name();
  refuse_if(optimizer == "lars" || optimizer == "lamb", kKey,
            "does not work with optimizer.name = \"{}\", which needs norms of whole layers (use sgd or adamw)",
            optimizer);
}

}  // namespace

void check_replay(const Config& c, bool on_gpu) {
  if (c.run.replay_every == 0) return;
  refuse_if(c.parallel.mode == ParallelMode::kScatter, "run.replay_every",
            "{} does not work with parallel.mode = \"scatter\" (use \"data\", or 0)", c.run.replay_every);
  refuse_if(
      c.parallel.shard_optimizer, "run.replay_every",
      "{} does not work with parallel.shard_optimizer = true (replicas compare states that all of them have; use 0)",
      c.run.replay_every);
  refuse_if(c.parallel.shard_head, "run.replay_every",
            "{} does not work with parallel.shard_head = true (replicas compare states that all of them have; use 0)",
            c.run.replay_every);
  refuse_if(
      on_gpu && !c.device.deterministic, "run.replay_every",
      "{} on a GPU needs device.deterministic = true: without it equal inputs need not give equal bits (set it, or "
      "0)",
      c.run.replay_every);
}

void check_config(const Config& config, DeviceCheck device) {
  check_run(config);
  check_log(config);
  if (device == DeviceCheck::kBuild) check_device(config);
  check_variables("device.plan_cache", config.device.plan_cache);
  check_replay(config, config.device.kind == DeviceKind::kCuda);
  check_layers(config);
  check_weights(config);
  check_units(config);
  check_model_and_data(config);
  check_sizes(config);
  check_staging(config);
  check_augmentation(config);
  check_training(config);
  check_optimizer(config);
  check_parallel(config);
  check_shard_head(config);
}

}  // namespace convoy
