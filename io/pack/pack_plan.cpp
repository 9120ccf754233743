// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "io/data/sampler.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

void shuffle_part(std::vector<std::int64_t>& part, std::uint64_t key) {
  if (part.empty()) return;
  const std::vector<std::int64_t> before = part;
  const Permutation permutation(static_cast<std::int64_t>(part.size()), key);
  for (std::size_t i = 0; i < part.size(); ++i) {
    part[i] = before[static_cast<std::size_t>(permutation(static_cast<std::int64_t>(i)))];
  }
}

// Appends range `file` of `files` of the part to the order.
void append_range(std::vector<std::int64_t>& order, const std::vector<std::int64_t>& part, int file, int files) {
  const auto cut = [&](std::int64_t at) {
    return part.begin() + static_cast<std::ptrdiff_t>(part.size()) * at / files;
  };
  order.insert(order.end(), cut(file), cut(file + 1));
}

}  // namespace

std::vector<bool> held_out_samples(const std::vector<std::int64_t>& labels, std::int64_t classes, double share,
                                   std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> members(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i) members[static_cast<std::size_t>(labels[i])].push_back(i);
  std::vector<bool> held_out(labels.size(), false);
  const std::uint64_t key = random_key(seed, "validation");
  for (std::size_t label = 0; label < members.size(); ++label) {
    const auto count = static_cast<std::int64_t>(members[label].size());
    if (count < 2) continue;
    const Permutation permutation(count, random_bits(key, label));
    const auto taken = std::min<std::int64_t>(count - 1, std::llround(share * static_cast<double>(count)));
    for (std::int64_t i = 0; i < taken; ++i) {
      held_out[members[label][static_cast<std::size_t>(permutation(i))]] = true;
    }
  }
  return held_out;
}

void lay_out(PackPlan& plan, const std::vector<std::int64_t>& training, const std::vector<std::int64_t>& validation,
             int files) {
  for (const auto* part : {&training, &validation}) {
    const char* name = !plan.split ? "" : part == &training ? "training " : "validation ";
    if ((part == &validation && !plan.split) || static_cast<std::size_t>(files) <= part->size()) continue;
    fail_usage("--shards: {} are more than the {} {}samples (each shard needs at least one)", files, part->size(),
               name);
  }
  plan.order.clear();
  plan.order.reserve(training.size() + validation.size());
  plan.files.assign(static_cast<std::size_t>(files), {});
  const auto end = [&] { return static_cast<std::int64_t>(plan.order.size()); };
  for (int file = 0; file < files; ++file) {
    PackRange& range = plan.files[static_cast<std::size_t>(file)];
    range.first = end();
    append_range(plan.order, training, file, files);
    range.validation = end();
    append_range(plan.order, validation, file, files);
    range.last = end();
  }
}

PackPlan plan_packing(const PackSource& source, double share, std::uint64_t seed, std::optional<std::uint64_t> shuffle,
                      int files) {
  PackPlan plan;
  const bool own = source.first_held_out() < source.size();
  if (own && share > 0) {
    fail_usage("--validation: {} has a validation part of its own, its test files (leave the option out)",
               source.path());
  }
  plan.split = own || share > 0;
  std::vector<std::int64_t> training, validation;
  std::vector<bool> held_out(static_cast<std::size_t>(source.size()), false);
  if (share > 0) {
    std::vector<std::int64_t> labels(held_out.size());
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = source.label(static_cast<std::int64_t>(i));
    held_out = held_out_samples(labels, source.classes(), share, seed);
  }
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const bool out = i >= source.first_held_out() || held_out[static_cast<std::size_t>(i)];
    (out ? validation : training).push_back(i);
  }
  if (plan.split && (validation.empty() || training.empty())) {
    fail_usage("--validation: {} of the {} samples leaves a part without any (another share)", share, source.size());
  }
  if (shuffle) {
    shuffle_part(training, random_key(*shuffle, "pack training"));
    shuffle_part(validation, random_key(*shuffle, "pack validation"));
  }
  lay_out(plan, training, validation, files);
  return plan;
}

}  // namespace convoy
