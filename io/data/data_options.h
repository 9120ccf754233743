// SPDX-License-Identifier: Apache-2.0
//
// The options of data sets, of their augmentation and of the loader: [data].
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/augment.h"
#include "layers/base/options.h"

namespace convoy {

/// The names of data sets.
[[nodiscard]] std::span<const std::string_view> dataset_names();

inline constexpr std::array<std::string_view, 2> kSamplers{"shuffle", "balanced"};

/// [data]
struct DataOptions {
  std::string kind = "synthetic";  ///< one of dataset_names()
  std::string train;               ///< hdf5: FILE or FILE:/GROUP
  std::string validation;          ///< the same; empty: no evaluation
  std::string stage_dir;           ///< where each node copies them to first; empty: read where they are
  std::int64_t image_size = 0;     ///< height and width; hdf5: 0 takes the file's, else checked against it; JPEGs: 224
  std::int64_t channels = 0;       ///< the same
  std::vector<std::int64_t> train_sizes;      ///< of training images, one after the other; empty: image_size
  std::vector<std::int64_t> size_milestones;  ///< the epochs from which on the next size is taken: rising
  std::int64_t features = 0;         ///< synthetic: samples are float32 [features] instead of images; 0: images
  std::int64_t targets = 0;          ///< synthetic: targets are float32 [targets] instead of labels; 0: labels
  std::int64_t samples = 1024;       ///< synthetic: length of an epoch
  std::vector<double> mean = {0.0};  ///< one per channel, or one for all
  std::vector<double> std = {1.0};
  bool allow_nonfinite = false;      ///< hdf5: of float inputs and targets
  bool verify = false;               ///< hdf5: samples against the checksums of a packed file
  std::vector<std::string> augment;  ///< of training samples: augment_names()
  std::array<double, 2> crop_area = {0.08, 1.0};
  std::array<double, 2> crop_ratio = {3.0 / 4.0, 4.0 / 3.0};
  std::int64_t crop_padding = 4;                 ///< of images of one size
  std::vector<double> jitter = {0.4, 0.4, 0.4};  ///< brightness, contrast, saturation
  double hue = 0.1;                              ///< of a circle
  std::int64_t rand_operations = 2;              ///< of an image
  std::int64_t rand_magnitude = 9;               ///< of them
  std::int64_t repeated_times = 3;               ///< of a sample in an epoch
  double erase_probability = 0.1;
  std::array<double, 2> erase_area = {0.02, 0.33};
  std::array<double, 2> erase_ratio = {0.3, 3.3};  ///< height over width
  double mixup_alpha = 0.2, cutmix_alpha = 1.0;
  std::int64_t resize = 0;   ///< JPEGs: shorter side before the central crop; 0: image_size * 256 / 224
  double max_broken = 0.01;  ///< JPEGs: share of the files
  bool shuffle = true;
  std::string sampler = "shuffle";    ///< or "balanced": each class equally often, with replacement
  std::vector<double> class_weights;  ///< of the training loss, one of each class; empty: all 1
  bool drop_last = true;
  std::int64_t loader_threads = 0;  ///< 0: as many as cores that do not compute, at least 1

  [[nodiscard]] bool augments(std::string_view how) const {
    return std::find(augment.begin(), augment.end(), how) != augment.end();
  }
  [[nodiscard]] Augmentation augmentation() const;
  /// How many times a training sample comes, one after the other.
  [[nodiscard]] std::int64_t repetitions() const { return augments("repeated") ? repeated_times : 1; }

  template <class Visitor, class Self>
  static void visit(Visitor& v, Self& d) {
    const auto owned = [&](const Rule& rule, std::string_view only) {
      return rule.only_for("data.kind", d.kind, {only});
    };
    const auto from_files = [&](const Rule& rule) {
      return rule.of_form(d.kind == "hdf5" ? InputForm::kFileOrShards : InputForm::kFileOrFolder)
          .only_for("data.kind", d.kind, {"hdf5", "idx", "cifar10", "image_folder"});
    };
    v.key("kind", d.kind, one_of(dataset_names()).required(),
          "synthetic: random samples; hdf5: an HDF5 data file; idx: MNIST's files; cifar10: CIFAR-10's binary batches; "
          "image_folder: a folder with a folder of JPEGs and PNGs for each class");
    v.key("train", d.train, from_files(input_file().required()),
          "hdf5: FILE or FILE:/GROUP, of shards \"OUT-*.h5\"; idx: the file of images, or a folder; cifar10: a batch "
          "file, or a folder; "
          "image_folder: the folder");
    v.key("validation", d.validation, from_files(input_file()), "the same; \"\": no evaluation");
    v.key(
        "stage_dir", d.stage_dir, anything().only_for("data.kind", d.kind, {"hdf5", "idx", "cifar10", "image_folder"}),
        "hdf5, idx, cifar10 (not image_folder): folder on each node's own storage, to which it copies the files before "
        "they are read ($NAME is a variable of the environment); \"\": none");
    v.key("samples", d.samples, owned(between(1, kMaxCount), "synthetic"), "length of an epoch");
    v.key("features", d.features, owned(between(0, 1e7), "synthetic"), "float32 vectors of this length; 0: images");
    v.key("targets", d.targets, owned(between(0, 1e7), "synthetic"), "float32 targets of this length; 0: class labels");
    const bool synthetic = d.kind == "synthetic", vectors = synthetic && d.features > 0;
    const auto images = [&](const Rule& rule) {
      return rule.only_if(!vectors, "is ignored with data.features (samples are vectors, not images)");
    };
    const bool of_any_size = d.kind == "image_folder", chosen = of_any_size || (synthetic && !vectors);
    v.fallback(d.image_size, chosen ? 224 : 0);
    v.fallback(d.channels, chosen ? 3 : 0);
    v.key("image_size", d.image_size, images(between(chosen ? 1 : 0, 65536)),
          "height and width; default 224, with hdf5 0: as in the file (else it must be the file's), 224 of JPEGs and "
          "PNGs");
    v.key("channels", d.channels, images(between(chosen ? 1 : 0, of_any_size ? 3 : 65536)),
          "of an image; default 3, with hdf5 0: as in the file (else it must be the file's), 3 of JPEGs and PNGs (or "
          "1: grey)");
    v.key("train_sizes", d.train_sizes,
          images(between(1, 65536).only_for("data.kind", d.kind, {"synthetic", "hdf5", "image_folder"})),
          "encoded and synthetic images: height and width of training images, one after the other; []: image_size");
    v.key("size_milestones", d.size_milestones,
          between(1, kMaxCount)
              .only_if(!d.train_sizes.empty(), "is ignored without data.train_sizes (give the sizes there)"),
          "epochs after which training moves to the next of data.train_sizes");
    v.key("mean", d.mean, images(anything().items(1)),
          "pixels from 0 to 1, or float inputs, become (x - mean) / std; per channel or feature, or one for all");
    v.key("std", d.std, images(above(0).items(1)), "the same");
    v.key("allow_nonfinite", d.allow_nonfinite, owned(anything(), "hdf5"),
          "float inputs and targets may be infinite or NaN; false: such a sample ends the run");
    v.key("verify", d.verify, owned(anything(), "hdf5"),
          "each sample that is read must have its checksum, which convoy pack has written");
    visit_augmentation(v, d);
    v.key("shuffle", d.shuffle, anything(), "a new order of samples every epoch");
    v.key("sampler", d.sampler,
          one_of(kSamplers).only_if(d.shuffle, "is ignored with data.shuffle = false (leave that out)"),
          "shuffle: every sample once in an epoch; balanced: each draw takes any class, then any sample "
          "of it, with equal probability");
    v.key("class_weights", d.class_weights, between(1e-6, 1e6),
          "cross_entropy: weight of each class in the training loss; []: all equal");
    v.key("drop_last", d.drop_last, anything(), "leave out an epoch's last samples when they do not fill a batch");
    v.key("loader_threads", d.loader_threads, between(0, 1024),
          "a rank's threads that prepare batches; 0: as many as cores that do not compute, at least 1");
  }

  /// Options about samples that are changed on their way.
  template <class Visitor, class Self>
  static void visit_augmentation(Visitor& v, Self& d) {
    const auto in = [&](const Rule& rule, std::initializer_list<std::string_view> kinds) {
      return rule.only_for("data.kind", d.kind, kinds);
    };
    const auto with = [&](const Rule& rule, const char* how) {
      return rule.only_if(d.augments(how),
                          fmt::format("is ignored without \"{}\" in data.augment (add it there)", how));
    };
    v.key(
        "augment", d.augment, in(one_of(augment_names()), {"hdf5", "idx", "cifar10", "image_folder"}),
        "random changes of training images: crop (of JPEGs and PNGs a part of random size, of images of one size moved "
        "by up to crop_padding), flip (left to right), trivial (TrivialAugment: one operation of random strength), "
        "rand "
        "(RandAugment: several of one strength), jitter (of colours), hue (of colours), repeated (an epoch has fewer "
        "samples, each several times), erase (a box of the normalised image), mixup and cutmix (of pairs of images and "
        "their labels)");
    v.key("crop_area", d.crop_area, with(in(between(0, 1), {"hdf5", "image_folder"}), "crop"),
          "JPEGs, PNGs: smallest and largest share of the image in a crop");
    v.key("crop_ratio", d.crop_ratio, with(in(above(0), {"hdf5", "image_folder"}), "crop"),
          "JPEGs, PNGs: smallest and largest width of a crop over its height");
    v.key("crop_padding", d.crop_padding, with(in(between(0, 1024), {"hdf5", "idx", "cifar10"}), "crop"),
          "images of one size: black pixels on each side before the crop");
    v.key("jitter", d.jitter, with(in(between(0, 10), {"hdf5", "idx", "cifar10", "image_folder"}), "jitter"),
          "brightness, contrast and saturation change by a factor of 1 - this to 1 + this");
    v.key("hue", d.hue, with(in(between(0, 0.5), {"hdf5", "idx", "cifar10", "image_folder"}), "hue"),
          "the hue turns by up to this part of a circle, to either side");
    v.key("rand_operations", d.rand_operations,
          with(in(between(1, 100), {"hdf5", "idx", "cifar10", "image_folder"}), "rand"), "operations on each image");
    v.key("rand_magnitude", d.rand_magnitude,
          with(in(between(0, 30), {"hdf5", "idx", "cifar10", "image_folder"}), "rand"), "how strong they are");
    v.key("repeated_times", d.repeated_times,
          with(in(between(2, 1000), {"hdf5", "idx", "cifar10", "image_folder"}), "repeated"),
          "how many times a sample comes in an epoch, one after the other, each changed in another way");
    v.key("erase_probability", d.erase_probability, with(between(0, 1), "erase"),
          "share of the images with such a box");
    v.key("erase_area", d.erase_area, with(between(0, 1), "erase"),
          "smallest and largest share of the image in the box");
    v.key("erase_ratio", d.erase_ratio, with(above(0), "erase"),
          "smallest and largest height of the box over its width");
    v.key("mixup_alpha", d.mixup_alpha, with(above(0), "mixup"), "the share of an image is from Beta(alpha, alpha)");
    v.key("cutmix_alpha", d.cutmix_alpha, with(above(0), "cutmix"), "the same");
    v.key("resize", d.resize, in(between(0, 65536), {"hdf5", "image_folder"}),
          "JPEGs, PNGs without a random crop: the shorter side before the central crop; 0: image_size * 256 / 224");
    v.key("max_broken", d.max_broken, in(between(0, 1), {"hdf5", "image_folder"}),
          "JPEGs, PNGs: share of broken files that ends the run; up to it others of their class take their place");
  }
  bool operator==(const DataOptions&) const = default;
};

}  // namespace convoy
