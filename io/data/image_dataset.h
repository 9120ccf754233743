// SPDX-License-Identifier: Apache-2.0
//
// Encoded images as samples of one size, or of one in each epoch: decoded, cropped, resized, and for training
// augmented. Relies on decode_tools.h, of which each thread has its own. Invariant: a sample is a pure function of
// (data, seed, epoch, index); a broken file is replaced by another of its class, so that labels hold also where no rank
// decodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/data/augment.h"
#include "io/data/broken_files.h"
#include "io/data/dataset.h"
#include "io/data/encoded_images.h"
#include "io/data/image_sizes.h"
#include "io/images/decoded_image.h"

namespace convoy {

class ImageDataset final : public Dataset {
 public:
  struct Options {
    ImageSizes size = 224;  ///< height and width of a sample
    int channels = 3;       ///< 3: RGB; 1: grey
    int resize = 0;  ///< what the shorter side becomes before the central crop, without augmentation.crop; at least the
                     ///< size. 0: size * 256 / 224
    Augmentation augmentation;
    std::uint64_t seed = 0;
    double max_broken = 0;  ///< share of the files
  };
  ImageDataset(std::unique_ptr<EncodedImages> images, std::string source, const Options& options);

  [[nodiscard]] std::int64_t size() const override { return images_->size(); }
  [[nodiscard]] Shape sample_shape() const override { return shape_of(options_.size.largest()); }
  [[nodiscard]] Shape sample_shape_in(std::int64_t epoch) const override { return shape_of(options_.size.at(epoch)); }
  [[nodiscard]] DType input_dtype() const override { return DType::kU8; }
  [[nodiscard]] std::int64_t target_size() const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return images_->classes(); }
  [[nodiscard]] std::vector<std::string> class_names() const override { return images_->class_names(); }
  void check_labels(std::int64_t classes) const override { images_->check_labels(classes); }
  [[nodiscard]] BrokenFiles* broken() const override { return &broken_; }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  [[nodiscard]] Shape shape_of(std::int64_t size) const { return {options_.channels, size, size}; }
  void decode(std::int64_t index, const SampleId& sample, std::uint8_t* out) const;
  [[nodiscard]] ImageHeader open(std::int64_t index) const;
  void replace(const SampleId& sample, std::uint8_t* out) const;
  [[nodiscard]] const std::vector<std::int64_t>& members(std::int64_t label) const;

  const std::unique_ptr<EncodedImages> images_;
  const Options options_;
  mutable BrokenFiles broken_;
  mutable std::atomic<bool> alpha_told_ = false;  // that transparency is dropped
  mutable std::once_flag classes_listed_;
  mutable std::vector<std::vector<std::int64_t>> members_;  // of each class; made when the first file is broken
};

}  // namespace convoy
