// SPDX-License-Identifier: Apache-2.0
#include "app/build_data.h"

#include "io/cifar10.h"
#include "io/hdf5_dataset.h"
#include "io/idx.h"
#include "io/synthetic.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::int64_t kSyntheticImageSize = 224;
constexpr std::int64_t kSyntheticChannels = 3;
constexpr std::int64_t kToyClasses = 5;

std::unique_ptr<Dataset> build_synthetic(const Config& config) {
  const DataConfig& d = config.data;
  const std::int64_t size = d.image_size > 0 ? d.image_size : kSyntheticImageSize;
  const std::int64_t channels = d.channels > 0 ? d.channels : kSyntheticChannels;
  const Shape sample = d.features > 0 ? Shape{d.features} : Shape{channels, size, size};
  const std::int64_t classes = config.model.classes > 0 ? config.model.classes : kToyClasses;
  return std::make_unique<SyntheticDataset>(d.samples, sample, d.targets > 0 ? 0 : classes, d.targets, config.run.seed);
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

std::unique_ptr<Dataset> open_source(DataKind kind, const std::string& source, bool training) {
  switch (kind) {
    case DataKind::kIdx: return open_idx(source, training);
    case DataKind::kCifar10: return open_cifar10(source, training);
    case DataKind::kHdf5:
    case DataKind::kSynthetic: break;
  }
  return std::make_unique<Hdf5Dataset>(source);
}

}  // namespace

std::unique_ptr<Dataset> build_dataset(const Config& config, const std::string& source, const std::string& key) {
  if (config.data.kind == DataKind::kSynthetic) return build_synthetic(config);
  try {
    auto data = open_source(config.data.kind, source, key == "data.train");
    check_images(config.data, data->sample_shape(), source);
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
  if (validation->sample_shape() != train.sample_shape() || validation->input_dtype() != train.input_dtype() ||
      validation->target_size() != train.target_size()) {
    fail_usage("data.validation: samples of {} are {} {} with {} targets, those of {} are {} {} with {}",
               config.data.validation, dtype_name(validation->input_dtype()), validation->sample_shape().str(),
               validation->target_size(), config.data.train, dtype_name(train.input_dtype()),
               train.sample_shape().str(), train.target_size());
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
