// SPDX-License-Identifier: Apache-2.0
//
// Random tensors and weights on any backend: the same for the same sequence of requests everywhere.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/base/random.h"

namespace convoy {

struct TestWeight {
  std::unique_ptr<WeightLayout> layout;
  Weight weight;
};

class RandomData {
 public:
  explicit RandomData(Backend& backend) : backend_(backend) {}

  /// Uniform in [low, high), float32.
  Tensor floats(const Shape& shape, double low = -1, double high = 1) {
    const std::uint64_t key = next_key();
    return filled<float>(shape, DType::kF32,
                         [&](std::uint64_t i) { return low + (high - low) * random_uniform(key, i); });
  }
  /// The same in the compute type.
  Tensor activations(const Shape& shape, double low = -1, double high = 1) {
    return in_compute_type(floats(shape, low, high));
  }
  /// One of -2, -1, 0, 1, 2, in the compute type: windows with several maxima.
  Tensor coarse_activations(const Shape& shape) {
    const std::uint64_t key = next_key();
    const auto value = [&](std::uint64_t i) { return static_cast<double>(random_bits(key, i) % 5) - 2; };
    return in_compute_type(filled<float>(shape, DType::kF32, value));
  }
  Tensor images(const Shape& shape) {
    const std::uint64_t key = next_key();
    return filled<std::uint8_t>(shape, DType::kU8, [&](std::uint64_t i) { return random_bits(key, i) % 256; });
  }
  Tensor labels(std::int64_t samples, std::int64_t classes) {
    const std::uint64_t key = next_key();
    const auto count = static_cast<std::uint64_t>(classes);
    return filled<std::int64_t>({samples}, DType::kI64, [&](std::uint64_t i) { return random_bits(key, i) % count; });
  }
  /// Boxes in images of this size, of no pixels to all of them: int64 [count, 4].
  Tensor boxes(std::int64_t count, std::int64_t height, std::int64_t width) {
    const std::uint64_t key = next_key();
    std::vector<std::int64_t> host;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto below = [&](std::uint64_t j, std::int64_t limit) {
        return static_cast<std::int64_t>(random_bits(key, 4 * static_cast<std::uint64_t>(i) + j) %
                                         static_cast<std::uint64_t>(limit + 1));
      };
      const std::int64_t left = below(0, width), top = below(1, height);
      host.insert(host.end(), {left, top, below(2, width - left), below(3, height - top)});
    }
    Tensor x = backend_.tensor({count, 4}, DType::kI64);
    backend_.copy_from_host(host.data(), x);
    return x;
  }
  Tensor box(std::int64_t left, std::int64_t top, std::int64_t width, std::int64_t height) {
    const std::array<std::int64_t, 4> host{left, top, width, height};
    Tensor x = backend_.tensor({1, 4}, DType::kI64);
    backend_.copy_from_host(host.data(), x);
    return x;
  }
  /// Of a loss: not zero, since losses are added.
  Tensor totals() {
    return filled<double>({3}, DType::kF64, [](std::uint64_t i) { return 0.5 * static_cast<double>(i) + 1; });
  }
  /// Uninitialised, in the compute type.
  Tensor output(const Shape& shape) { return backend_.tensor(shape, backend_.compute_type()); }
  Tensor output_f32(const Shape& shape) { return backend_.tensor(shape, DType::kF32); }

  /// A parameter of variance 1 / (inputs of one output).
  TestWeight weight(std::unique_ptr<WeightLayout> layout) {
    const std::uint64_t key = next_key();
    const Shape& shape = layout->shape();
    const double bound = shape.rank() == 1 ? 1 : std::sqrt(3 / static_cast<double>(shape.sample_size()));
    std::vector<float> host(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<float>(bound * (2 * random_uniform(key, i) - 1));
    TestWeight result{std::move(layout), {}};
    result.weight.layout = result.layout.get();
    result.weight.master = output_f32({result.layout->elements()});
    backend_.import_weight(*result.layout, host.data(), result.weight.master);
    backend_.refresh_compute(result.weight);
    return result;
  }

 private:
  std::uint64_t next_key() { return random_key(7, std::to_string(count_++)); }
  template <class T, class Value>
  Tensor filled(const Shape& shape, DType dtype, const Value& value) {
    std::vector<T> host(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<T>(value(i));
    Tensor x = backend_.tensor(shape, dtype);
    backend_.copy_from_host(host.data(), x);
    return x;
  }
  Tensor in_compute_type(Tensor x) {
    if (backend_.compute_type() == DType::kF32) return x;
    Tensor y = output(x.shape());
    backend_.run(ops::Cast{x, y});
    return y;
  }

  Backend& backend_;
  int count_ = 0;
};

}  // namespace convoy
