// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_data.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "app/build/build_model.h"
#include "app/build/read_config.h"
#include "io/data/datasets.h"
#include "io/data/shards.h"
#include "io/files/packed_bytes.h"
#include "io/hdf5/hdf5_source.h"
#include "io/hdf5/validation.h"
#include "layers/base/counted.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"
#include "layers/base/system_error.h"
#include "parallel/comm/agree.h"
#include "parallel/watchdog/activity.h"

namespace convoy {

namespace {

constexpr std::int64_t kToyClasses = 5;

// What is wrong with the data is wrong in the config; what a machine cannot do now is not.
[[noreturn]] void fail_source(const std::string& key, const Error& error) {
  if (is_system_fault(error)) fail_as(error, key + ": " + error.what());
  fail_option(key, "{}", error.what());
}

// The first sample shows what the targets are.
void check_float_targets(const Config& config, const Dataset& train) {
  const Loss& loss = config.train.loss;
  if (train.target_size() == 0 || loss.scores(true) == Scores::kRegression) return;
  std::vector<float> first(static_cast<std::size_t>(train.target_size()));
  train.read(0, nullptr, nullptr, first.data());
  const bool shares = std::all_of(first.begin(), first.end(), [](float t) { return !(t < 0 || t > 1); });
  const bool probabilities = shares && std::abs(std::accumulate(first.begin(), first.end(), -1.0)) < 1e-3;
  if (loss.kind == Loss::Kind::kCrossEntropy && !probabilities) {
    fail_option("train.loss",
                "cross_entropy needs class labels or probabilities, but {} has other float targets (use mse or l1)",
                config.data.train);
  }
  if (loss.kind == Loss::Kind::kBce && !shares) {
    fail_option("train.loss", "bce needs targets from 0 to 1, but {} has others (use mse or l1)", config.data.train);
  }
  if (loss.kind == Loss::Kind::kBce && loss.label_smoothing > 0) {
    fail_option("train.label_smoothing", "with bce is for class labels, but {} has float targets (leave it out)",
                config.data.train);
  }
}

void check_class_weights(const Config& config, const Dataset& train) {
  const std::size_t given = config.data.class_weights.size();
  if (given == 0) return;
  if (train.target_size() > 0) {
    fail_option("data.class_weights", "needs class labels, but {} has float targets (leave it out)", config.data.train);
  }
  const std::int64_t classes = output_size(config, train);
  if (static_cast<std::int64_t>(given) != classes) {
    fail_option("data.class_weights", "{} for {} (give one for each class)", counted(given, "weight"),
                counted(classes, "class"));
  }
}

std::unique_ptr<Dataset> open(const Config& config, const std::string& source, const std::string& key,
                              BytePacker* packer, ByteUnpacker* packed) {
  const DatasetRequest request{
      config.data, source, key == "data.train", config.run.seed, config.model.takes_signals(), config.model.classes,
      packer,      packed};
  if (config.data.kind == "synthetic") return open_dataset(request);
  try {
    auto data = open_dataset(request);
    const std::int64_t classes = config.model.name == "toy" ? kToyClasses : config.model.classes;
    if (data->target_size() == 0 && classes > 0) data->check_labels(classes);
    return data;
  } catch (const OptionError&) {
    throw;
  } catch (const Error& error) {
    fail_source(key, error);
  }
}

MatchedClasses open_validation(const Config& config, const std::string& source, const Dataset& train,
                               BytePacker* packer, ByteUnpacker* packed) {
  auto data = open(config, source, "data.validation", packer, packed);
  try {
    return match_classes(std::move(data), source, train.class_names());
  } catch (const Error& error) {
    fail_source("data.validation", error);
  }
}

// Whether there is something at the source. A pattern of shards counts as its folder.
void check_source(const Config& config, const std::string& source, const std::string& key) {
  const std::string& kind = config.data.kind;
  if (kind == "synthetic" || kind == "idx" || kind == "cifar10" || source.empty()) return;  // rank 0 sends them
  std::string path = config.data.kind == "hdf5" ? Hdf5Source(source).path : source;
  if (is_shard_pattern(path)) path = std::filesystem::path(path).parent_path().string();
  if (path.empty() || ::access(path.c_str(), R_OK) == 0) return;
  try {
    fail_system(errno, "cannot read {}: {}", path, std::strerror(errno));
  } catch (const Error& error) {
    fail_as(error, key + ": " + error.what());  // of this host: rank 0 has the data
  }
}

}  // namespace

std::unique_ptr<Dataset> build_dataset(const Config& config, const std::string& source, const std::string& key) {
  return open(config, source, key, nullptr, nullptr);
}

void check_data(const Config& config, const Dataset& train, const Dataset* validation) {
  if (train.size() == 0) fail_option("data.train", "{} has no samples", config.data.train);
  check_float_targets(config, train);
  if (config.data.augmentation().mixes() && train.target_size() > 0) {
    fail_option("data.augment", "mixup and cutmix need class labels, but {} has float targets (leave them out)",
                config.data.train);
  }
  if (train.target_size() > 0 && config.parallel.shard_head) {
    fail_option("parallel.shard_head", "needs class labels, but {} has targets (set it to false)", config.data.train);
  }
  if (train.target_size() > 0 && config.data.sampler == "balanced") {
    fail_option("data.sampler", "\"balanced\" needs class labels, but {} has targets", config.data.train);
  }
  check_class_weights(config, train);
  if (validation == nullptr) return;
  const Shape seen = validation->sample_shape(), trained = train.sample_shape();
  const bool any_size = !config.data.train_sizes.empty();
  const bool fits = any_size ? seen.rank() == trained.rank() && seen[0] == trained[0] : seen == trained;
  if (!fits || validation->input_dtype() != train.input_dtype() || validation->target_size() != train.target_size()) {
    fail_option("data.validation", "samples of {} are {} {} with {} targets, those of {} are {} {} with {}",
                config.data.validation, dtype_name(validation->input_dtype()), seen.str(), validation->target_size(),
                config.data.train, dtype_name(train.input_dtype()), trained.str(), train.target_size());
  }
  if (config.model.classes == 0 && validation->classes() > train.classes()) {
    fail_option("data.validation", "{} has labels up to {}, the training data only up to {} (set model.classes)",
                config.data.validation, validation->classes() - 1, train.classes() - 1);
  }
}

DataSets build_data(const Config& config, const std::string& train, const std::string& validation, Communicator& all,
                    bool leads) {
  DataSets sets;
  const auto open_both = [&](BytePacker* packer, ByteUnpacker* packed) {
    sets.train = open(config, train, "data.train", packer, packed);
    if (validation.empty()) return;
    sets.validation = open_validation(config, validation, *sets.train, packer, packed);
  };
  const bool root = all.rank() == 0;
  std::string layout;
  const auto look = [&] {
    BytePacker packer;
    if (root) {
      note_activity("listing and opening the data");
      open_both(all.size() > 1 ? &packer : nullptr, nullptr);
      check_data(config, *sets.train, sets.validation.data.get());
      if (all.size() > 1) packer.text(hdf5::validated_files());
      layout = packer.take();
    } else if (leads) {
      check_source(config, train, "data.train");
      check_source(config, validation, "data.validation");
    }
  };
  agree(
      all, [&] { add_places(config, look); }, "opening the data", leads);
  layout = all.broadcast(std::move(layout), 0, "names, labels and layout of the data");
  const auto unpack = [&] {
    if (root) return;
    ByteUnpacker packed(layout);
    open_both(nullptr, &packed);
    hdf5::add_validated_files(packed.text());
  };
  agree(
      all, [&] { add_places(config, unpack); }, "opening the data");
  return sets;
}

void check_plan(const Config& config, const BatchPlan& plan, std::int64_t parts) {
  if (plan.steps_per_epoch() == 0) {
    fail_option("train.global_batch_size",
                "{} is more than the {} training samples (a smaller batch, or "
                "data.drop_last = false)",
                config.train.global_batch_size, plan.size);
  }
  const std::int64_t rest = plan.size % plan.global_batch;
  if (!plan.drop_last && rest > 0 && rest < parts) {
    fail_option("data.drop_last",
                "false leaves a last batch of {} for {} ranks and microbatches (set it to true, "
                "or change train.global_batch_size)",
                counted(rest, "sample"), parts);
  }
}

}  // namespace convoy
