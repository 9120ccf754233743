// SPDX-License-Identifier: Apache-2.0
//
// A small checkpoint with every kind of tensor that real ones have, as a pure function of the step. Relies on random.h.
// Invariant: float bits are arbitrary, including NaN payloads and denormals, so that only a bitwise copy equals it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "layers/base/random.h"

namespace convoy::test {

inline HostTensor random_tensor(const std::string& name, const Shape& shape, DType dtype, std::uint64_t seed) {
  HostTensor tensor(name, shape, dtype);
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.bytes[i] = static_cast<std::byte>(random_bits(random_key(seed, name), i));
  }
  return tensor;
}

inline Checkpoint sample_checkpoint(std::int64_t step, std::int64_t width = 8) {
  Checkpoint c;
  const auto seed = static_cast<std::uint64_t>(step);
  // In the order of their paths, which is the order in which they are read back.
  c.model = {random_tensor("bn1.num_batches_tracked", Shape{}, DType::kI64, seed),
             random_tensor("bn1.running_mean", {width}, DType::kF32, seed),
             random_tensor("fc.bias", {10}, DType::kF32, seed),
             random_tensor("fc.weight", {10, width}, DType::kF32, seed),
             random_tensor("layer1.0.conv1.weight", {width, 3, 3, 3}, DType::kF32, seed)};
  c.optimizer = {{"empty", {}},
                 {"momentum",
                  {random_tensor("fc.weight", {10, width}, DType::kF32, seed + 1),
                   random_tensor("layer1.0.conv1.weight", {width, 3, 3, 3}, DType::kF32, seed + 1)}}};
  c.step = step;
  c.epoch = 3;
  c.samples_seen = 4096;
  c.lr_step = step + 1;
  c.seed = 0xFFFFFFFFFFFFFFF5ull;
  c.loss_scale = 65536.125;
  c.config = "[run]\nname = \"é\"\n";
  c.program_version = "0.1.0";
  c.mode = "pipeline";
  c.created = "2024-01-02T03:04:05Z";
  c.ranks = 4;
  return c;
}

inline bool same_tensors(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].shape != b[i].shape || a[i].dtype != b[i].dtype) return false;
    if (a[i].bytes != b[i].bytes) return false;
  }
  return true;
}

inline bool same_checkpoint(const Checkpoint& a, const Checkpoint& b) {
  if (!same_tensors(a.model, b.model) || !same_tensors(a.average, b.average)) return false;
  if (a.optimizer.size() != b.optimizer.size()) return false;
  for (std::size_t i = 0; i < a.optimizer.size(); ++i) {
    if (a.optimizer[i].first != b.optimizer[i].first) return false;
    if (!same_tensors(a.optimizer[i].second, b.optimizer[i].second)) return false;
  }
  return a.step == b.step && a.epoch == b.epoch && a.samples_seen == b.samples_seen && a.lr_step == b.lr_step &&
         a.seed == b.seed && a.loss_scale == b.loss_scale && a.config == b.config && a.mode == b.mode &&
         a.program_version == b.program_version && a.created == b.created && a.ranks == b.ranks;
}

}  // namespace convoy::test
