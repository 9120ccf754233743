// SPDX-License-Identifier: Apache-2.0
//
// A sample of a run, and its random numbers. Relies on layers/base/random.h. Invariant: a number is a pure function of
// (seed, epoch, index, repetition) and of how many were drawn before: not of ranks, threads, or where a run was
// resumed.
#pragma once

#include <cstdint>
#include <string_view>

namespace convoy {

/// A sample, in which epoch it is wanted, and for which time in that epoch (from 0): augmentation differs.
struct SampleId {
  SampleId(std::int64_t sample, std::int64_t of_epoch = 0, std::int64_t time = 0)
      : index(sample), epoch(of_epoch), repetition(time) {}  // NOLINT: an index is one
  std::int64_t index;
  std::int64_t epoch;
  std::int64_t repetition;
  bool operator==(const SampleId&) const = default;
};

/// The random numbers of one sample for one time in one epoch, one after the other.
class SampleRandom {
 public:
  /// purpose: other numbers for each.
  SampleRandom(std::uint64_t seed, const SampleId& sample, std::string_view purpose = "augment");
  /// Uniform on [low, high).
  double uniform(double low, double high);
  /// Uniform on 0, ..., count - 1.
  int below(int count);
  /// From the standard normal distribution.
  double normal();
  bool coin() { return uniform(0, 1) < 0.5; }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace convoy
