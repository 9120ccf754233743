// SPDX-License-Identifier: Apache-2.0
//
// Relies on mix64 of layers/base/random.h. The network's domain is less than four times the range, so a position is
// walked fewer than four steps on average. Invariant: each round is invertible, hence so are the network and its cycle
// walk.
#include "io/data/sampler.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "io/files/crc32c.h"
#include "layers/base/error.h"
#include "layers/base/random.h"

namespace convoy {

Permutation::Permutation(std::int64_t size, std::uint64_t key) : size_(static_cast<std::uint64_t>(size)) {
  if (size < 1) fail("a permutation of {} elements", size);
  const auto bits = static_cast<unsigned>(std::bit_width(size_ - 1));
  half_bits_ = std::max(1U, (bits + 1) / 2);
  half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  for (auto& round_key : keys_) round_key = key = mix64(key);
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  auto value = static_cast<std::uint64_t>(position);
  if (position < 0 || value >= size_) fail("position {} of a permutation of {}", position, size_);
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & half_mask_;
    for (const std::uint64_t round_key : keys_) {
      const std::uint64_t mixed = left ^ (mix64(right ^ round_key) & half_mask_);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

Sampler::Sampler(std::int64_t size, std::uint64_t seed, bool shuffle) : size_(size), seed_(seed), shuffle_(shuffle) {
  if (size < 1) fail_usage("a data set without samples cannot be sampled");
}

Sampler::Sampler(const std::vector<std::int64_t>& labels, std::uint64_t seed)
    : Sampler(static_cast<std::int64_t>(labels.size()), seed, true) {
  const auto [least, largest] = std::minmax_element(labels.begin(), labels.end());
  if (*least < 0) fail_usage("sample {} has the label {} (labels count from 0)", least - labels.begin(), *least);
  // Counting sort: first how many of each class, then where the next of each goes.
  std::vector<std::int64_t> next(static_cast<std::size_t>(*largest) + 1);
  for (const std::int64_t label : labels) ++next[static_cast<std::size_t>(label)];
  auto classes = std::make_shared<Classes>();
  std::int64_t end = 0;
  for (std::int64_t& count : next) {
    const std::int64_t first = end;
    end += count;
    if (count > 0) classes->ends.push_back(end);
    count = first;
  }
  classes->samples.resize(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    classes->samples[static_cast<std::size_t>(next[static_cast<std::size_t>(labels[i])]++)] =
        static_cast<std::int64_t>(i);
  }
  classes_ = std::move(classes);
}

std::int64_t Sampler::balanced(std::int64_t epoch, std::int64_t position) const {
  const std::uint64_t key = random_bits(random_key(seed_, "balanced"), static_cast<std::uint64_t>(epoch));
  const auto below = [&](std::uint64_t draw, std::int64_t count) {
    const double uniform = random_uniform(key, 2 * static_cast<std::uint64_t>(position) + draw);
    return static_cast<std::int64_t>(uniform * static_cast<double>(count));
  };
  const auto& ends = classes_->ends;
  const auto label = static_cast<std::size_t>(below(0, static_cast<std::int64_t>(ends.size())));
  const std::int64_t first = label == 0 ? 0 : ends[label - 1];
  return classes_->samples[static_cast<std::size_t>(first + below(1, ends[label] - first))];
}

SampleId Sampler::at(std::int64_t epoch, std::int64_t position) const {
  return {index(epoch, position), epoch, classes_ ? position + 1 : 0};
}

std::int64_t Sampler::index(std::int64_t epoch, std::int64_t position) const {
  if (position < 0 || position >= size_) fail("position {} of an epoch of {} samples", position, size_);
  if (classes_) return balanced(epoch, position);
  if (!shuffle_) return position;
  return order_of(epoch)(position);
}

Permutation Sampler::order_of(std::int64_t epoch) const {
  return {size_, random_bits(seed_, static_cast<std::uint64_t>(epoch))};
}

std::uint32_t Sampler::digest(std::int64_t epoch, std::int64_t first, std::int64_t count) const {
  const Permutation order = order_of(epoch);
  std::uint32_t checksum = 0;
  for (std::int64_t position = first; position < first + count; ++position) {
    const auto sample = static_cast<std::uint64_t>(shuffle_ && !classes_ ? order(position) : index(epoch, position));
    std::array<char, 8> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(sample >> (8 * i));
    checksum = crc32c({bytes.data(), bytes.size()}, checksum);
  }
  return checksum;
}

Sampler training_sampler(const Dataset& data, const DataOptions& options, std::uint64_t seed) {
  if (options.sampler != "balanced") return {data.size(), seed, options.shuffle};
  std::vector<std::int64_t> labels(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < labels.size(); ++i) data.read(static_cast<std::int64_t>(i), nullptr, &labels[i], nullptr);
  return {labels, seed};
}

Range part(std::int64_t first, std::int64_t count, std::int64_t parts, std::int64_t p) {
  const std::int64_t begin = count * p / parts;
  return {first + begin, count * (p + 1) / parts - begin};
}

std::int64_t BatchPlan::steps_per_epoch() const {
  return drop_last ? size / global_batch : (size + global_batch - 1) / global_batch;
}

Range BatchPlan::batch_at(std::int64_t position) const {
  const std::int64_t left = std::max<std::int64_t>(0, size - position);
  if (left >= global_batch) return {position, global_batch};
  return {position, drop_last ? 0 : left};
}

}  // namespace convoy
