// SPDX-License-Identifier: Apache-2.0
//
// Relies on layers/base/random.h. Image bytes take eight pixels from each random word, since a sample should cost
// little next to a training step. Invariant: inputs, label and targets of a sample come from three different keys.
#include "io/data/synthetic.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "layers/base/random.h"

namespace convoy {

namespace {

void fill_floats(float* out, std::int64_t count, std::uint64_t key) {
  for (std::int64_t i = 0; i < count; ++i) {
    // 24 bits: exact in a float.
    out[i] = static_cast<float>(random_bits(key, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-23F - 1.0F;
  }
}

void fill_bytes(std::uint8_t* out, std::int64_t count, std::uint64_t key) {
  std::uint64_t counter = 0;
  for (std::int64_t i = 0; i < count; i += 8) {
    const std::uint64_t word = mix64(key + counter++);
    std::memcpy(out + i, &word, static_cast<std::size_t>(count - i < 8 ? count - i : 8));
  }
}

}  // namespace

SyntheticDataset::SyntheticDataset(std::int64_t samples, const Shape& sample_shape, std::int64_t classes,
                                   std::int64_t target_size, std::uint64_t seed, std::optional<ImageSizes> sizes)
    : samples_(samples),
      sample_shape_(sample_shape),
      classes_(classes),
      target_size_(target_size),
      key_(random_key(seed, "synthetic")),
      sizes_(std::move(sizes)) {
  if (samples < 1) fail_usage("synthetic data: {} samples (at least 1)", samples);
  if ((sample_shape.rank() != 1 && sample_shape.rank() != 3) || sample_shape.size() < 1) {
    fail_usage("synthetic data: samples of shape {} ([C, H, W] or [F])", sample_shape.str());
  }
  if (target_size < 0) fail_usage("synthetic data: targets of length {}", target_size);
  if (target_size == 0 && classes < 1) fail_usage("synthetic data: {} classes (at least 1)", classes);
}

Shape SyntheticDataset::sample_shape_in(std::int64_t epoch) const {
  if (!sizes_) return sample_shape_;
  const std::int64_t size = sizes_->at(epoch);
  return {sample_shape_[0], size, size};
}

void SyntheticDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* target) const {
  const std::int64_t index = sample.index;
  if (index < 0 || index >= samples_) fail("synthetic data: sample {} of {}", index, samples_);
  const std::uint64_t key = random_bits(key_, static_cast<std::uint64_t>(index));
  if (input != nullptr && sample_shape_.rank() == 3) {
    fill_bytes(static_cast<std::uint8_t*>(input), sample_shape_in(sample.epoch).size(), random_key(key, "input"));
  } else if (input != nullptr) {
    fill_floats(static_cast<float*>(input), sample_shape_.size(), random_key(key, "input"));
  }
  if (label != nullptr) {
    *label = static_cast<std::int64_t>(random_bits(key, 0) % static_cast<std::uint64_t>(classes_ > 0 ? classes_ : 1));
  }
  if (target != nullptr) fill_floats(target, target_size_, random_key(key, "target"));
}

}  // namespace convoy
