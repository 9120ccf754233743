// SPDX-License-Identifier: Apache-2.0
#include "io/pack_plan.h"

#include <algorithm>
#include <cmath>

#include "io/sampler.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

void shuffle_part(std::vector<std::int64_t>& order, std::int64_t first, std::int64_t last, std::uint64_t key) {
  if (first == last) return;
  const std::vector<std::int64_t> before(order.begin() + first, order.begin() + last);
  const Permutation permutation(last - first, key);
  for (std::int64_t i = 0; i < last - first; ++i) {
    order[static_cast<std::size_t>(first + i)] = before[static_cast<std::size_t>(permutation(i))];
  }
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

PackPlan plan_packing(const PackSource& source, double share, std::uint64_t seed,
                      std::optional<std::uint64_t> shuffle) {
  PackPlan plan;
  const bool own = source.first_held_out() < source.size();
  if (own && share > 0) {
    fail_usage("--validation: {} has a validation part of its own, its test files (leave the option out)",
               source.path());
  }
  plan.split = own || share > 0;
  plan.order.reserve(static_cast<std::size_t>(source.size()));
  std::vector<std::int64_t> validation;
  std::vector<bool> held_out(static_cast<std::size_t>(source.size()), false);
  if (share > 0) {
    std::vector<std::int64_t> labels(held_out.size());
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = source.label(static_cast<std::int64_t>(i));
    held_out = held_out_samples(labels, source.classes(), share, seed);
  }
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const bool out = i >= source.first_held_out() || held_out[static_cast<std::size_t>(i)];
    (out ? validation : plan.order).push_back(i);
  }
  plan.training = static_cast<std::int64_t>(plan.order.size());
  if (plan.split && (validation.empty() || plan.training == 0)) {
    fail_usage("--validation: {} of the {} samples leaves a part without any (another share)", share, source.size());
  }
  plan.order.insert(plan.order.end(), validation.begin(), validation.end());
  if (shuffle) {
    shuffle_part(plan.order, 0, plan.training, random_key(*shuffle, "pack training"));
    shuffle_part(plan.order, plan.training, source.size(), random_key(*shuffle, "pack validation"));
  }
  return plan;
}

}  // namespace convoy
