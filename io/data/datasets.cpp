// SPDX-License-Identifier: Apache-2.0
#include "io/data/datasets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "io/data/augmented_dataset.h"
#include "io/data/cifar10.h"
#include "io/data/float_dataset.h"
#include "io/data/hdf5_shards.h"
#include "io/data/idx.h"
#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"
#include "io/data/in_memory_dataset.h"
#include "io/data/shards.h"
#include "io/data/synthetic.h"
#include "io/files/packed_bytes.h"
#include "io/hdf5/hdf5_source.h"
#include "layers/base/option_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSyntheticImageSize = 224;
constexpr std::int64_t kSyntheticChannels = 3;
constexpr std::int64_t kSyntheticClasses = 5;                 // unless the model says otherwise
constexpr std::int64_t kImageSize = 224, kImageChannels = 3;  // of JPEGs

ImageSizes training_sizes(const DataOptions& d, std::int64_t otherwise) {
  if (!d.train_sizes.empty()) return {d.train_sizes, d.size_milestones};
  return d.image_size > 0 ? d.image_size : otherwise;
}

std::unique_ptr<Dataset> open_synthetic(const DatasetRequest& request) {
  const DataOptions& d = request.options;
  const ImageSizes sizes = training_sizes(d, kSyntheticImageSize);
  const std::int64_t size = sizes.largest();
  const std::int64_t channels = d.channels > 0 ? d.channels : kSyntheticChannels;
  const Shape sample = d.features > 0 ? Shape{d.features} : Shape{channels, size, size};
  const std::int64_t classes = request.classes > 0 ? request.classes : kSyntheticClasses;
  return std::make_unique<SyntheticDataset>(d.samples, sample, d.targets > 0 ? 0 : classes, d.targets, request.seed,
                                            d.features > 0 ? std::nullopt : std::optional(sizes));
}

void check_images(const DataOptions& d, const Shape& sample, const std::string& source) {
  if (sample.rank() != 3) return;
  if (d.channels > 0 && sample[0] != d.channels) {
    fail_option("data.channels", "{}, but the images of {} have {}", d.channels, source, sample[0]);
  }
  if (d.image_size > 0 && (sample[1] != d.image_size || sample[2] != d.image_size)) {
    fail_option("data.image_size", "{}, but the images of {} are {}x{}", d.image_size, source, sample[1], sample[2]);
  }
}

/// An option that belongs to the other kind of images in HDF5 files, which the config alone does not tell.
void refuse_changed(bool changed, const char* key, const std::string& source, const char* what) {
  if (changed) fail_option(key, "is ignored with {}, which holds {} (leave it out)", source, what);
}

std::unique_ptr<Dataset> open_images(const DatasetRequest& request, std::unique_ptr<EncodedImages> images) {
  const DataOptions& d = request.options;
  const std::string& source = request.source;
  const bool training = request.training;
  refuse_changed(d.crop_padding != DataOptions{}.crop_padding, "data.crop_padding", source, "encoded images");
  ImageDataset::Options options;
  const std::int64_t image_size = d.image_size > 0 ? d.image_size : kImageSize;
  options.size = training ? training_sizes(d, kImageSize) : image_size;
  options.channels = static_cast<int>(d.channels > 0 ? d.channels : kImageChannels);
  options.resize = static_cast<int>(d.resize);
  if (options.channels != 1 && options.channels != 3) {
    fail_option("data.channels", "{}, but JPEGs and PNGs become images of 3 (RGB) or 1 (grey)", options.channels);
  }
  if (d.resize > 0 && d.resize < image_size) {
    fail_option("data.resize", "{} is smaller than data.image_size, {} (at least that, or 0)", d.resize, image_size);
  }
  if (d.resize > 0 && !d.augments("crop") && d.resize < options.size.largest()) {
    fail_option("data.resize", "{} is smaller than the largest of data.train_sizes, {} (at least that, or 0)", d.resize,
                options.size.largest());
  }
  if (training) {
    options.augmentation = d.augmentation();
    check_channels(options.augmentation, options.channels);
  }
  options.seed = request.seed;
  options.max_broken = d.max_broken;
  return std::make_unique<ImageDataset>(std::move(images), source, options);
}

/// Samples of one size, as they lie in the file; in training they may be augmented.
std::unique_ptr<Dataset> with_augmentation(const DatasetRequest& request, std::unique_ptr<Dataset> data) {
  const DataOptions& d = request.options;
  const DataOptions defaults;
  const auto refuse = [&](bool changed, const char* key) {
    refuse_changed(changed, key, request.source, "samples of one size, not encoded images");
  };
  refuse(d.crop_area != defaults.crop_area, "data.crop_area");
  refuse(d.crop_ratio != defaults.crop_ratio, "data.crop_ratio");
  refuse(d.resize != defaults.resize, "data.resize");
  refuse(d.max_broken != defaults.max_broken, "data.max_broken");
  refuse(!d.train_sizes.empty(), "data.train_sizes");
  check_images(d, data->sample_shape(), request.source);
  if (!request.training || d.augment.empty()) return data;
  for (const std::string& name : d.augment) {
    if (data->input_dtype() == DType::kU8 || name == "crop" || name == "flip") continue;
    fail_option("data.augment",
                "\"{}\" is for images of bytes, and the samples of {} are {} {} (leave it out; crop and flip work)",
                name, request.source, dtype_name(data->input_dtype()), data->sample_shape().str());
  }
  return std::make_unique<AugmentedDataset>(std::move(data), d.augmentation(), request.seed);
}

/// What the files hold, from them or from the process that has looked at them.
template <class Open, class Unpack>
auto find(const DatasetRequest& r, const Open& open, const Unpack& unpack) {
  auto found = r.packed != nullptr ? unpack(*r.packed) : open();
  if (r.packer != nullptr) found->pack(*r.packer);
  return found;
}

std::unique_ptr<Dataset> open_hdf5_data(const DatasetRequest& r) {
  const bool jpegs = r.packed != nullptr ? r.packed->number() != 0 : has_hdf5_jpegs(r.source);
  if (r.packer != nullptr) r.packer->number(jpegs ? 1 : 0);
  if (jpegs) {
    return open_images(r, find(
                              r, [&] { return open_hdf5_jpegs(r.source, r.options.verify); },
                              [&](ByteUnpacker& packed) { return unpack_hdf5_jpegs(r.source, packed); }));
  }
  return with_augmentation(r, find(
                                  r, [&] { return open_hdf5(r.source, r.signals, r.options.verify); },
                                  [&](ByteUnpacker& packed) { return unpack_hdf5(r.source, packed); }));
}

std::unique_ptr<Dataset> unpack_in_memory(ByteUnpacker& packed) { return std::make_unique<InMemoryDataset>(packed); }

std::unique_ptr<Dataset> open_idx_data(const DatasetRequest& r) {
  return with_augmentation(r, find(
                                  r, [&] { return open_idx(r.source, r.training); }, unpack_in_memory));
}

std::unique_ptr<Dataset> open_cifar10_data(const DatasetRequest& r) {
  return with_augmentation(r, find(
                                  r, [&] { return open_cifar10(r.source, r.training); }, unpack_in_memory));
}

std::unique_ptr<Dataset> open_folder(const DatasetRequest& r) {
  return open_images(r, find(
                            r, [&] { return std::make_unique<ImageFolder>(r.source); },
                            [&](ByteUnpacker& packed) { return std::make_unique<ImageFolder>(r.source, packed); }));
}

std::vector<std::string> hdf5_files(const std::string& source, bool /*training*/) {
  std::vector<std::string> files = shard_sources(source);
  for (std::string& file : files) file = Hdf5Source(file).path;
  return files;
}

std::string moved_to(const std::string& path, const std::string& folder) {
  return (fs::path(folder) / fs::path(path).filename()).string();
}

std::string moved_hdf5(const std::string& source, const std::string& /*first_file*/, const std::string& folder) {
  Hdf5Source place(source);
  place.path = moved_to(place.path, folder);
  return place.name_of();
}

std::string moved_idx(const std::string& /*source*/, const std::string& first_file, const std::string& folder) {
  return moved_to(first_file, folder);
}

std::string moved_cifar10(const std::string& source, const std::string& /*first_file*/, const std::string& folder) {
  return fs::is_directory(source) ? folder : moved_to(source, folder);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<Dataset> (*open)(const DatasetRequest& request);
  std::vector<std::string> (*files)(const std::string& source, bool training) = nullptr;
  std::string (*moved)(const std::string& source, const std::string& first_file, const std::string& folder) = nullptr;
};

/// Those with `files` can be copied to other folders.
constexpr auto kDatasets = std::to_array<Entry>({
    {"synthetic", open_synthetic},
    {"hdf5", open_hdf5_data, hdf5_files, moved_hdf5},
    {"idx", open_idx_data, idx_files, moved_idx},
    {"cifar10", open_cifar10_data, cifar10_files, moved_cifar10},
    {"image_folder", open_folder},
});

const Entry& dataset_entry(std::string_view name) {
  for (const Entry& entry : kDatasets) {
    if (entry.name == name) return entry;
  }
  fail_option("data.kind", "unknown name \"{}\" (must be one of {})", name, join(dataset_names()));
}

}  // namespace

std::span<const std::string_view> dataset_names() {
  static const auto names = [] {
    std::array<std::string_view, kDatasets.size()> result;
    std::transform(kDatasets.begin(), kDatasets.end(), result.begin(), [](const Entry& entry) { return entry.name; });
    return result;
  }();
  return names;
}

Augmentation DataOptions::augmentation() const {
  Augmentation a;
  for (const std::string& name : augment) a.*augment_member(name) = true;
  a.area = crop_area;
  a.ratio = crop_ratio;
  a.padding = static_cast<int>(crop_padding);
  std::copy(jitter.begin(), jitter.end(), a.strength.begin());
  a.hue_strength = hue;
  a.rand_operations = static_cast<int>(rand_operations);
  a.rand_magnitude = static_cast<int>(rand_magnitude);
  a.erase_probability = erase_probability;
  a.erase_area = erase_area;
  a.erase_ratio = erase_ratio;
  a.mixup_alpha = mixup_alpha;
  a.cutmix_alpha = cutmix_alpha;
  return a;
}

std::unique_ptr<Dataset> open_dataset(const DatasetRequest& request) {
  const DataOptions& d = request.options;
  auto data = dataset_entry(d.kind).open(request);
  if (d.kind == "synthetic" || (data->input_dtype() != DType::kF32 && data->target_size() == 0)) return data;
  return std::make_unique<FloatDataset>(std::move(data),
                                        FloatDataset::Options{request.source, d.mean, d.std, d.allow_nonfinite});
}

bool can_stage(std::string_view kind) { return dataset_entry(kind).files != nullptr; }

std::vector<std::string> dataset_files(std::string_view kind, const std::string& source, bool training) {
  return dataset_entry(kind).files(source, training);
}

std::string moved_source(std::string_view kind, const std::string& source, const std::string& first_file,
                         const std::string& folder) {
  return dataset_entry(kind).moved(source, first_file, folder);
}

}  // namespace convoy
