// SPDX-License-Identifier: Apache-2.0
//
// Which sample comes when: a pure function of (seed, epoch, position), so that any rank of any mesh finds its own.
// Shuffling needs no table, so that a billion samples cost nothing. Relies on mix64. Invariant: for each epoch,
// sample() is injective, and its values never change between versions, since a checkpoint stores a position only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/augment/sample_random.h"
#include "io/data/data_options.h"
#include "io/data/dataset.h"

namespace convoy {

/// A keyed bijection of [0, size): a Feistel network over the next even power of two, walked until it is back in range.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t key);
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;

 private:
  static constexpr int kRounds = 8;
  std::uint64_t size_;
  unsigned half_bits_;  // of the two halves of the network's words
  std::uint64_t half_mask_;
  std::array<std::uint64_t, kRounds> keys_{};
};

/// The order of samples of a run.
class Sampler {
 public:
  /// Without shuffle, every epoch goes 0, 1, 2, ... With repetitions each sample comes so many times, one after the
  /// other, and an epoch ends after `size` of them: repeated augmentation (Hoffer et al. 2020, torchvision's
  /// RASampler).
  Sampler(std::int64_t size, std::uint64_t seed, bool shuffle, std::int64_t repetitions = 1);
  /// Draws with replacement: first one of the classes that have samples, then one of its samples, all equally likely.
  /// As torch.utils.data.WeightedRandomSampler with weights of 1 / (samples of the class) and as many draws as samples.
  /// Throws a usage Error unless `labels`, one for each sample, are at least 0.
  Sampler(const std::vector<std::int64_t>& labels, std::uint64_t seed);
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// What comes at `position` in [0, size) of `epoch`.
  [[nodiscard]] SampleId sample(std::int64_t epoch, std::int64_t position) const;
  [[nodiscard]] std::int64_t index(std::int64_t epoch, std::int64_t position) const {
    return sample(epoch, position).index;
  }
  /// A record of what a step saw: the CRC-32C of the indices at `count` positions from `first` on, each as 8 bytes,
  /// little-endian.
  [[nodiscard]] std::uint32_t digest(std::int64_t epoch, std::int64_t first, std::int64_t count) const;

 private:
  /// Samples by class; those of class c end at ends[c]. Classes without samples are left out.
  struct Classes {
    std::vector<std::int64_t> samples, ends;
  };

  [[nodiscard]] Permutation order_of(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t balanced(std::int64_t epoch, std::int64_t position) const;

  std::int64_t size_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t repetitions_ = 1;
  std::shared_ptr<const Classes> classes_;  // null: no sample is drawn twice
};

/// That of a training on `data`: data.shuffle and data.sampler. "balanced" reads all labels.
[[nodiscard]] Sampler training_sampler(const Dataset& data, const DataOptions& options, std::uint64_t seed);

/// A run of positions of an epoch.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Range& other) const = default;
};

/// The p-th of `parts` contiguous parts of [first, first + count), which differ by at most one in length: it starts at
/// first + floor(count * p / parts). Equal parts when `parts` divides `count`.
[[nodiscard]] Range part(std::int64_t first, std::int64_t count, std::int64_t parts, std::int64_t p);

/// The arithmetic of an epoch cut into global batches.
struct BatchPlan {
  std::int64_t size = 0;          ///< samples of the data set
  std::int64_t global_batch = 1;  ///< samples of a step, all ranks together
  bool drop_last = true;          ///< leave out what is left over after whole batches

  [[nodiscard]] std::int64_t steps_per_epoch() const;
  /// The global batch that starts at `position` of the epoch; count is 0 when the epoch has none left.
  [[nodiscard]] Range batch_at(std::int64_t position) const;
};

}  // namespace convoy
