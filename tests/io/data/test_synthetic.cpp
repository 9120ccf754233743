// SPDX-License-Identifier: Apache-2.0
//
// Synthetic samples: the same for the same (seed, index), different otherwise, and spread as they say.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/data/synthetic.h"

using namespace convoy;

TEST_CASE("images are a pure function of seed and index") {
  const SyntheticDataset a(100, {3, 5, 7}, 10, 0, 1), b(100, {3, 5, 7}, 10, 0, 1), c(100, {3, 5, 7}, 10, 0, 2);
  CHECK(a.input_dtype() == DType::kU8);
  CHECK(a.classes() == 10);
  std::vector<std::uint8_t> x(105), y(105), z(105), other(105);
  std::int64_t label = -1, same_label = -1;
  a.read(42, x.data(), &label, nullptr);
  b.read(7, other.data(), &same_label, nullptr);
  b.read(42, y.data(), &same_label, nullptr);
  c.read(42, z.data(), nullptr, nullptr);
  CHECK(x == y);
  CHECK(label == same_label);
  CHECK(x != z);
  CHECK(x != other);
}

TEST_CASE("labels and pixels are spread evenly") {
  const SyntheticDataset data(10000, {1, 1, 1}, 10, 0, 5);
  std::array<int, 10> labels{};
  double sum = 0;
  for (std::int64_t i = 0; i < 10000; ++i) {
    std::uint8_t pixel = 0;
    std::int64_t label = -1;
    data.read(i, &pixel, &label, nullptr);
    REQUIRE(label >= 0);
    REQUIRE(label < 10);
    ++labels[static_cast<std::size_t>(label)];
    sum += pixel;
  }
  for (const int count : labels) CHECK(std::abs(count - 1000) < 180);
  CHECK(std::abs(sum / 10000 - 127.5) < 5);
}

TEST_CASE("vectors and targets are floats in [-1, 1)") {
  const SyntheticDataset data(10, {1000}, 0, 500, 5);
  CHECK(data.input_dtype() == DType::kF32);
  CHECK(data.target_size() == 500);
  CHECK(data.classes() == 0);
  std::vector<float> input(1000), target(500);
  data.read(3, input.data(), nullptr, target.data());
  double sum = 0;
  for (const float value : input) {
    REQUIRE(value >= -1.0F);
    REQUIRE(value < 1.0F);
    sum += value;
  }
  CHECK(std::abs(sum / 1000) < 0.1);
  CHECK(input[0] != target[0]);
}

TEST_CASE("images that change their size are those of a data set of that size") {
  const SyntheticDataset data(10, {3, 8, 8}, 4, 0, 5, ImageSizes({4, 8}, {2}));
  CHECK(data.sample_shape() == Shape{3, 8, 8});
  for (const std::int64_t epoch : {0, 1, 2, 3}) {
    const std::int64_t size = epoch < 2 ? 4 : 8;
    CHECK(data.sample_shape_in(epoch) == Shape{3, size, size});
    const SyntheticDataset alone(10, {3, size, size}, 4, 0, 5);
    // One byte more, which must stay as it is.
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * size * size + 1), 77), expected = pixels;
    data.read({6, epoch}, pixels.data(), nullptr, nullptr);
    alone.read(6, expected.data(), nullptr, nullptr);
    CHECK(pixels == expected);
    CHECK(pixels.back() == 77);
  }
}

TEST_CASE("what makes no data set is an error of input") {
  CHECK_THROWS_AS(SyntheticDataset(0, {3}, 1, 0, 0), Error);
  CHECK_THROWS_AS(SyntheticDataset(1, {3, 3}, 1, 0, 0), Error);
  CHECK_THROWS_AS(SyntheticDataset(1, {3}, 0, 0, 0), Error);
  CHECK_THROWS_AS(SyntheticDataset(5, {3}, 4, 0, 0).check_labels(3), Error);
}
