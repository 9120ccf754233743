// SPDX-License-Identifier: Apache-2.0
//
// Dropout: what is kept and what is not, how often, and that it depends on the place of a sample in the run alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "layers/base/random.h"
#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

Tensor position(Backend& backend, std::int64_t update, std::int64_t first) {
  const std::int64_t values[] = {update, first};
  Tensor tensor = backend.tensor({2}, DType::kI64);
  backend.copy_from_host(values, tensor);
  return tensor;
}

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  for (const Shape& shape : {Shape{batch, channels, 11, 9}, Shape{batch, channels}}) {
    RandomData data(backend);
    const Tensor at = position(backend, 3, 17);
    const Tensor x = data.activations(shape);
    backend.run(ops::Dropout{x, at, 5, 0.3, data.output(shape)});
    backend.run(ops::Dropout{x, at, 5, 0.9, x});
  }
});

struct Place {
  std::int64_t update = 0, first = 0;
};

// Of ones: 0 or the scale of what is kept.
Array mask(Device& device, const Shape& shape, double probability, const Place& place, std::uint64_t key = 1,
           DType dtype = DType::kF32) {
  Array ones(shape, 1.0);
  const Tensor x = device.put(ones, dtype), y = device.spoiled(shape, dtype);
  device.backend.run(ops::Dropout{x, position(device.backend, place.update, place.first), key, probability, y});
  return device.get(y);
}

double share_kept(const Array& mask) {
  double kept = 0;
  for (const double value : mask.values) kept += value != 0 ? 1 : 0;
  return kept / static_cast<double>(mask.values.size());
}

// The share of elements that are kept in both.
double share_of_both(const Array& a, const Array& b) {
  double kept = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) kept += a.values[i] != 0 && b.values[i] != 0 ? 1 : 0;
  return kept / static_cast<double>(a.values.size());
}

}  // namespace

TEST_CASE("kept elements are divided by the probability of being kept, and as many are kept") {
  Device device(2);
  const Shape shape{50, 20, 10, 10};
  for (const double probability : {0.0, 0.1, 0.5, 0.75}) {
    Array x = uniform(shape, 3);
    const Tensor tensor = device.put(x), y = device.spoiled(shape);
    device.backend.run(ops::Dropout{tensor, position(device.backend, 7, 0), 11, probability, y});
    const Array result = device.get(y);
    double kept = 0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      if (result.values[i] == 0) continue;
      ++kept;
      // Two roundings of float32: of the factor and of the product.
      REQUIRE(std::abs(result.values[i] - x.values[i] / (1 - probability)) <= 1.3e-7 * std::abs(result.values[i]));
    }
    // Five standard deviations of a binomial of n draws.
    const auto n = static_cast<double>(x.values.size());
    CHECK(std::abs(kept - n * (1 - probability)) <= 5 * std::sqrt(n * probability * (1 - probability)));
  }
}

TEST_CASE("the words are those of SplitMix64") {
  // The first outputs of the published generator (Steele, Lea & Flood 2014) for the seed 1234567.
  const std::uint64_t expected[] = {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL};
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(random_word(1234567, 2 * i) == static_cast<std::uint32_t>(expected[i]));
    CHECK(random_word(1234567, 2 * i + 1) == static_cast<std::uint32_t>(expected[i] >> 32));
  }
}

TEST_CASE("a sample loses the same elements in whatever microbatch, and with any number of threads") {
  Device one(1), three(3);
  for (const Shape& shape : {Shape{12, 3, 5, 7}, Shape{12, 2000}}) {
    const Array whole = mask(one, shape, 0.4, {5, 100});
    CHECK(mask(three, shape, 0.4, {5, 100}).values == whole.values);
    std::vector<double> parts;
    for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {5, 1}, {6, 6}}) {
      const Array part = mask(three, shape.with_batch(count), 0.4, {5, 100 + first});
      parts.insert(parts.end(), part.values.begin(), part.values.end());
    }
    CHECK(parts == whole.values);
  }
}

TEST_CASE("updates, layers and samples are independent, and so are neighbours") {
  Device device(2);
  const Shape shape{100, 1000};
  const Array base = mask(device, shape, 0.5, {5, 0});
  Array neighbours = base;
  std::rotate(neighbours.values.begin(), neighbours.values.begin() + 1, neighbours.values.end());
  for (const Array& other : {mask(device, shape, 0.5, {6, 0}), mask(device, shape, 0.5, {5, 0}, 2),
                             mask(device, shape, 0.5, {5, 100}), neighbours}) {
    CHECK(std::abs(share_kept(other) - 0.5) < 5 * 0.5 / std::sqrt(1e5));
    CHECK(std::abs(share_of_both(base, other) - 0.25) < 5 * 0.433 / std::sqrt(1e5));
  }
}

TEST_CASE("bfloat16 drops what float32 drops") {
  Device device(1);
  const Array wide = mask(device, {8, 130}, 0.5, {1, 2}), narrow = mask(device, {8, 130}, 0.5, {1, 2}, 1, DType::kBF16);
  CHECK(narrow.values == wide.values);  // 0 or 2
}
