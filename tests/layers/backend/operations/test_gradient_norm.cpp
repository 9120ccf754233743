// SPDX-License-Identifier: Apache-2.0
//
// Clipping by the global norm and the average of the weights: sums of squares, the factor, scaling by it, interpolation
// and exchange, against float64.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

const RegisterCalls registered([](Backend& backend, std::int64_t batch, std::int64_t channels) {
  for (const std::int64_t count : {std::int64_t{1}, 1000 * batch + channels, std::int64_t{70000}}) {
    RandomData data(backend);
    const Tensor x = data.floats({count}), y = data.floats({count});
    const std::int64_t first = (count + 1) / 2;
    const std::vector<Segment> segments{{0, first, true}, {0, 0, false}, {first, count - first, false}};
    const Tensor squares = backend.tensor({3}, DType::kF64), norm = backend.tensor({1}, DType::kF64);
    const Tensor factor = backend.tensor({1}, DType::kF32);
    backend.run(ops::SquaredNorms{segments, x, squares});
    for (const double clip_norm : {1e-3, 1e9}) {
      backend.run(ops::ClipFactor{clip_norm, squares, norm, factor});
      backend.run(ops::ScaleBy{factor, x});
    }
    backend.run(ops::Lerp{0.1F, x, y});
    backend.run(ops::Exchange{x, y});
    if (count < 8) continue;
    const Tensor part = x.view(3, {count - 5});  // not aligned
    backend.run(ops::ScaleBy{data.floats({1}), part});
    backend.run(ops::Lerp{0.3F, y.view(1, part.shape()), part});
    backend.run(ops::Exchange{part, y.view(2, part.shape())});
  }
});

double value(Device& device, const Tensor& x) {
  double host = 0;
  if (x.dtype() == DType::kF64) device.backend.copy_to_host(x, &host);
  return host;
}

// 0, a few elements, several pieces; with gaps between them.
const std::vector<Segment> kSegments{{16, 7, true}, {0, 0, false}, {32, 100001, false}, {100048, 40000, true}};
constexpr std::int64_t kCount = 140064;

}  // namespace

TEST_CASE("sums of squares of segments are those of float64, and depend on nothing else") {
  Array x = uniform({kCount}, 1);
  std::vector<std::vector<double>> all;
  for (const int threads : {1, 2, 3}) {
    for (const std::int64_t shift : {0, 16, 48}) {  // as in another stage
      Device device(threads);
      Array moved({kCount + shift}, 5.0);
      for (std::int64_t i = 0; i < kCount; ++i) {
        moved.values[static_cast<std::size_t>(i + shift)] = x.values[static_cast<std::size_t>(i)];
      }
      std::vector<Segment> segments = kSegments;
      for (Segment& segment : segments) segment.offset += shift;
      const Tensor squares = device.backend.tensor({4}, DType::kF64);
      device.backend.run(ops::SquaredNorms{segments, device.put(moved), squares});
      std::vector<double> sums(4);
      device.backend.copy_to_host(squares, sums.data());
      for (std::size_t s = 0; s < segments.size(); ++s) {
        double expected = 0;
        for (std::int64_t i = 0; i < segments[s].elements; ++i) {
          const double v = moved.values[static_cast<std::size_t>(segments[s].offset + i)];
          expected += v * v;
        }
        CHECK(std::abs(sums[s] - expected) <= 1e-12 * expected);  // a hundred thousand roundings of float64
      }
      all.push_back(sums);
    }
  }
  for (const auto& sums : all) CHECK(sums == all.front());
}

TEST_CASE("the factor is torch.nn.utils.clip_grad_norm_'s") {
  Device device(1);
  const Tensor squares = device.backend.tensor({3}, DType::kF64), norm = device.backend.tensor({1}, DType::kF64);
  const Tensor factor = device.backend.tensor({1}, DType::kF32);
  const auto check = [&](std::vector<double> sums, double clip_norm, double expected_norm, double expected) {
    device.backend.copy_from_host(sums.data(), squares);
    device.backend.run(ops::ClipFactor{clip_norm, squares, norm, factor});
    const double found_norm = value(device, norm), found = device.get(factor).values[0];
    CHECK(found_norm == doctest::Approx(expected_norm).epsilon(1e-14));
    CHECK(found == static_cast<double>(static_cast<float>(expected)));
  };
  check({9, 0, 16}, 1, 5, 1 / (5 + 1e-6));
  check({9, 0, 16}, 5, 5, 5 / (5 + 1e-6));
  check({9, 0, 16}, 5.00001, 5, 1);
  check({0, 0, 0}, 1, 0, 1);
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const std::vector<double> sums{1, wrong, 1};
    device.backend.copy_from_host(sums.data(), squares);
    device.backend.run(ops::ClipFactor{1, squares, norm, factor});
    CHECK_FALSE(std::isfinite(value(device, norm)));
    const double found = device.get(factor).values[0];
    CHECK((std::isnan(wrong) ? std::isnan(found) : found == 0));  // 0 turns what is infinite into a NaN
  }
}

TEST_CASE("scaling, interpolation and exchange") {
  for (const int threads : {1, 3}) {
    Device device(threads);
    for (const std::int64_t count : {1, 7, 70001}) {
      Array x = uniform({count}, 1), y = uniform({count}, 2), by({1}, 0.25), one({1}, 1.0);
      const Tensor tx = device.put(x), ty = device.put(y);
      device.backend.run(ops::ScaleBy{device.put(one), tx});
      check_close(device.get(tx), x, 0, 0, "by 1");
      device.backend.run(ops::ScaleBy{device.put(by), tx});
      for (double& v : x.values) v *= 0.25;
      check_close(device.get(tx), x, 0, 0, "by a power of two");
      device.backend.run(ops::Lerp{0.1F, tx, ty});
      Array mixed = y;
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        mixed.values[i] += static_cast<double>(0.1F) * (x.values[i] - y.values[i]);
      }
      check_close(device.get(ty), mixed, 2e-7, 1e-7, "lerp");  // three roundings of values up to 1
      const auto bytes_x = device.bytes(tx), bytes_y = device.bytes(ty);
      device.backend.run(ops::Exchange{tx, ty});
      CHECK(device.bytes(tx) == bytes_y);
      CHECK(device.bytes(ty) == bytes_x);
    }
  }
}
