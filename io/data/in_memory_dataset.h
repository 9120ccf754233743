// SPDX-License-Identifier: Apache-2.0
//
// Images with labels that lie whole in memory: what small data sets (MNIST, CIFAR-10) are read into. Invariant: as many
// labels as images, none of them negative.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/data/dataset.h"

namespace convoy {

class ByteUnpacker;

class InMemoryDataset final : public Dataset {
 public:
  struct Content {
    std::string source;                ///< for messages
    Shape sample;                      ///< [C, H, W]
    std::vector<std::uint8_t> pixels;  ///< [N, H, W, C]
    std::vector<std::int64_t> labels;  ///< [N]
    std::vector<std::string> class_names;
  };
  explicit InMemoryDataset(Content content);
  /// From pack().
  explicit InMemoryDataset(ByteUnpacker& packed);

  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(content_.labels.size()); }
  [[nodiscard]] Shape sample_shape() const override { return content_.sample; }
  [[nodiscard]] DType input_dtype() const override { return DType::kU8; }
  [[nodiscard]] std::int64_t target_size() const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return classes_; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return content_.class_names; }
  /// Throws an Error of bad input that names the source, the first bad sample and its label.
  void check_labels(std::int64_t classes) const override;
  /// All of it, with the pixels.
  void pack(BytePacker& packer) const override;
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override;

 private:
  Content content_;
  std::int64_t classes_ = 0;
};

}  // namespace convoy
