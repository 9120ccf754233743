// SPDX-License-Identifier: Apache-2.0
#include "app/build/build_data.h"

#include <optional>

#include "io/data/augmented_dataset.h"
#include "io/data/cifar10.h"
#include "io/data/hdf5_shards.h"
#include "io/data/idx.h"
#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"
#include "io/data/synthetic.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::int64_t kSyntheticImageSize = 224;
constexpr std::int64_t kSyntheticChannels = 3;
constexpr std::int64_t kToyClasses = 5;
constexpr std::int64_t kImageSize = 224, kChannels = 3;  // of JPEGs

ImageSizes training_sizes(const DataConfig& d, std::int64_t otherwise) {
  if (!d.train_sizes.empty()) return {d.train_sizes, d.size_milestones};
  return d.image_size > 0 ? d.image_size : otherwise;
}

std::unique_ptr<Dataset> build_synthetic(const Config& config) {
  const DataConfig& d = config.data;
  const ImageSizes sizes = training_sizes(d, kSyntheticImageSize);
  const std::int64_t size = sizes.largest();
  const std::int64_t channels = d.channels > 0 ? d.channels : kSyntheticChannels;
  const Shape sample = d.features > 0 ? Shape{d.features} : Shape{channels, size, size};
  const std::int64_t classes = config.model.classes > 0 ? config.model.classes : kToyClasses;
  return std::make_unique<SyntheticDataset>(d.samples, sample, d.targets > 0 ? 0 : classes, d.targets, config.run.seed,
                                            d.features > 0 ? std::nullopt : std::optional(sizes));
}

void check_images(const DataConfig& d, const Shape& sample, const std::string& source) {
  if (sample.rank() != 3) return;
  if (d.channels > 0 && sample[0] != d.channels) {
    fail_usage("data.channels: {}, but the images of {} have {}", d.channels, source, sample[0]);
  }
  if (d.image_size > 0 && (sample[1] != d.image_size || sample[2] != d.image_size)) {
    fail_usage("data.image_size: {}, but the images of {} are {}x{}", d.image_size, source, sample[1], sample[2]);
  }
}

Augmentation augmentation(const DataConfig& d) {
  Augmentation a;
  a.crop = d.augments("crop");
  a.flip = d.augments("flip");
  a.jitter = d.augments("jitter");
  a.area = d.crop_area;
  a.ratio = d.crop_ratio;
  a.padding = static_cast<int>(d.crop_padding);
  std::copy(d.jitter.begin(), d.jitter.end(), a.strength.begin());
  return a;
}

/// A key that belongs to the other kind of images in HDF5 files, which the config alone does not tell.
void refuse_changed(bool changed, const char* key, const std::string& source, const char* what) {
  if (changed) fail_usage("data.{}: means nothing for {}, which holds {} (leave it out)", key, source, what);
}

std::unique_ptr<Dataset> open_images(const Config& config, std::unique_ptr<EncodedImages> images,
                                     const std::string& source, bool training) {
  const DataConfig& d = config.data;
  refuse_changed(d.crop_padding != DataConfig{}.crop_padding, "crop_padding", source, "JPEGs");
  ImageDataset::Options options;
  const std::int64_t image_size = d.image_size > 0 ? d.image_size : kImageSize;
  options.size = training ? training_sizes(d, kImageSize) : image_size;
  options.channels = static_cast<int>(d.channels > 0 ? d.channels : kChannels);
  options.resize = static_cast<int>(d.resize);
  if (options.channels != 1 && options.channels != 3) {
    fail_usage("data.channels: {}, but JPEGs become images of 3 (RGB) or 1 (grey)", options.channels);
  }
  if (d.resize > 0 && d.resize < image_size) {
    fail_usage("data.resize: {} is smaller than data.image_size, {} (at least that, or 0)", d.resize, image_size);
  }
  if (d.resize > 0 && !d.augments("crop") && d.resize < options.size.largest()) {
    fail_usage("data.resize: {} is smaller than the largest of data.train_sizes, {} (at least that, or 0)", d.resize,
               options.size.largest());
  }
  if (training) options.augmentation = augmentation(d);
  options.seed = config.run.seed;
  options.max_broken = d.max_broken;
  return std::make_unique<ImageDataset>(std::move(images), source, options);
}

std::unique_ptr<Dataset> open_fixed(const Config& config, const std::string& source, bool training) {
  switch (config.data.kind) {
    case DataKind::kIdx: return open_idx(source, training);
    case DataKind::kCifar10: return open_cifar10(source, training);
    case DataKind::kHdf5:
    case DataKind::kImageFolder:
    case DataKind::kSynthetic: break;
  }
  return open_hdf5(source);
}

std::unique_ptr<Dataset> open_source(const Config& config, const std::string& source, bool training) {
  const DataConfig& d = config.data;
  if (d.kind == DataKind::kImageFolder) {
    return open_images(config, std::make_unique<ImageFolder>(source), source, training);
  }
  if (d.kind == DataKind::kHdf5 && has_hdf5_jpegs(source)) {
    return open_images(config, open_hdf5_jpegs(source), source, training);
  }
  const DataConfig defaults;
  const char* what = "samples of one size, not JPEGs";
  refuse_changed(d.crop_area != defaults.crop_area, "crop_area", source, what);
  refuse_changed(d.crop_ratio != defaults.crop_ratio, "crop_ratio", source, what);
  refuse_changed(d.resize != defaults.resize, "resize", source, what);
  refuse_changed(d.max_broken != defaults.max_broken, "max_broken", source, what);
  refuse_changed(!d.train_sizes.empty(), "train_sizes", source, what);
  auto data = open_fixed(config, source, training);
  check_images(d, data->sample_shape(), source);
  if (!training || d.augment.empty()) return data;
  return std::make_unique<AugmentedDataset>(std::move(data), augmentation(d), config.run.seed);
}

}  // namespace

std::unique_ptr<Dataset> build_dataset(const Config& config, const std::string& source, const std::string& key) {
  if (config.data.kind == DataKind::kSynthetic) return build_synthetic(config);
  try {
    auto data = open_source(config, source, key == "data.train");
    const std::int64_t classes = config.model.name == ModelKind::kToy ? kToyClasses : config.model.classes;
    if (data->target_size() == 0 && classes > 0) data->check_labels(classes);
    return data;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", key, error.what()), ExitCode::kUsage);
  }
}

void check_data(const Config& config, const Dataset& train, const Dataset* validation) {
  if (train.size() == 0) fail_usage("data.train: {} has no samples", config.data.train);
  if (train.target_size() > 0 && config.train.loss == LossKind::kCrossEntropy) {
    fail_usage("train.loss: cross_entropy needs class labels, but {} has float targets (use mse)", config.data.train);
  }
  if (validation == nullptr) return;
  const Shape seen = validation->sample_shape(), trained = train.sample_shape();
  const bool any_size = !config.data.train_sizes.empty();
  const bool fits = any_size ? seen.rank() == trained.rank() && seen[0] == trained[0] : seen == trained;
  if (!fits || validation->input_dtype() != train.input_dtype() || validation->target_size() != train.target_size()) {
    fail_usage("data.validation: samples of {} are {} {} with {} targets, those of {} are {} {} with {}",
               config.data.validation, dtype_name(validation->input_dtype()), seen.str(), validation->target_size(),
               config.data.train, dtype_name(train.input_dtype()), trained.str(), train.target_size());
  }
  if (config.model.classes == 0 && validation->classes() > train.classes()) {
    fail_usage("data.validation: {} has labels up to {}, the training data only up to {} (set model.classes)",
               config.data.validation, validation->classes() - 1, train.classes() - 1);
  }
}

void check_plan(const Config& config, const BatchPlan& plan, std::int64_t parts) {
  if (plan.steps_per_epoch() == 0) {
    fail_usage(
        "train.global_batch_size: {} is more than the {} training samples (a smaller batch, or "
        "data.drop_last = false)",
        config.train.global_batch_size, plan.size);
  }
  const std::int64_t rest = plan.size % plan.global_batch;
  if (!plan.drop_last && rest > 0 && rest < parts) {
    fail_usage(
        "data.drop_last: false leaves a last batch of {} samples for {} ranks and microbatches (set it to true, "
        "or change train.global_batch_size)",
        rest, parts);
  }
}

}  // namespace convoy
