// SPDX-License-Identifier: Apache-2.0
//
// NaN in any operand of any operation reaches an output, as with PyTorch: one table over all operations, and element by
// element where a comparison or a mask could lose it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/nan_backend.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<bool> nans(const Array& x) {
  std::vector<bool> result;
  for (const double value : x.values) result.push_back(std::isnan(value));
  return result;
}

}  // namespace

TEST_CASE("every operation propagates NaN from every operand") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype_name(compute));
    Device device(2, compute);
    NanBackend backend(device.backend);
    call_every_operation(backend, 2, 5);
    call_every_operation(backend, 9, 64);
    std::string lost;
    for (const std::string& operand : backend.swallowed()) lost += operand + "\n";
    CHECK(lost == "");
    std::set<std::string> unchecked;
#define CONVOY_NAME(Operation) unchecked.insert(ops::Operation::kName);
    CONVOY_OPERATIONS(CONVOY_NAME)
#undef CONVOY_NAME
    for (const std::string& name : backend.checked()) unchecked.erase(name);
    std::string missed;
    for (const std::string& name : unchecked) missed += name + "\n";
    CHECK(missed == "");
  }
}

TEST_CASE("ReLU keeps NaN in its place, alone and behind linear layers and batch norm") {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Device device(2, compute);
    Array x = uniform({3, 64}, 1);
    x.at(1, 5) = kNan;
    const std::vector<bool> place = nans(x);
    const Tensor input = device.put(x, compute), y = device.spoiled({3, 64}, compute);
    device.backend.run(ops::ReluForward{input, y});
    CHECK(nans(device.get(y)) == place);

    RandomData data(device.backend);
    const TestWeight w = data.weight(device.backend.linear_layout(64, 64, 3));
    device.backend.run(ops::LinearForward{input, w.weight, nullptr, true, y});
    std::vector<bool> row(3 * 64, false);
    std::fill_n(row.begin() + 64, 64, true);
    CHECK(nans(device.get(y)) == row);

    const Tensor ones = data.floats({64}, 1, 1.5), zeros = data.floats({64}, 0, 0.1);
    Tensor mask;
    device.backend.run(ops::BatchNormApply{input, zeros, ones, ones, zeros, 1e-5F, Tensor(), true, y, &mask});
    CHECK(nans(device.get(y)) == place);
    // The gradient passes where the output is NaN, as in PyTorch's threshold_backward.
    Array ones_dy({3, 64}, 1.0), none({3, 64}, 0.0);
    const Tensor dresidual = device.put(none, compute);
    device.backend.run(ops::BatchNormBackwardResidual{device.put(ones_dy, compute), mask, dresidual});
    CHECK(device.get(dresidual).at(1, 5) == 1.0);
  }
}

TEST_CASE("an update reports values that are not finite, and only those") {
  Device device(2);
  for (const double wrong : {0.5, kNan, std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t at : {0, 40000, 69999}) {
      CAPTURE(wrong);
      Array g({70000}, 0.5);
      g.values[static_cast<std::size_t>(at)] = wrong;
      const Tensor gradients = device.put(g);
      RandomData data(device.backend);
      const auto reported = [&](auto&& run) {
        const Tensor flag = device.backend.tensor({1}, DType::kF64);
        device.backend.zero(flag);
        run(flag);
        return *flag.data<double>() != 0;
      };
      const auto floats = [&] { return data.floats({70000}, 0, 1); };
      const bool expected = !std::isfinite(wrong);
      CHECK(reported([&](const Tensor& flag) {
              device.backend.run(ops::SgdUpdate{{0.1F, 0.9F, 0, false}, floats(), gradients, floats(), flag});
            }) == expected);
      CHECK(reported([&](const Tensor& flag) {
              device.backend.run(ops::SgdUpdate{{0.1F, 0, 0, false}, floats(), gradients, Tensor(), flag});
            }) == expected);
      CHECK(reported([&](const Tensor& flag) {
              device.backend.run(ops::AdamwUpdate{
                  {0.1F, 1e-8F, 0, 0.9, 0.999, 0.1, 0.001}, floats(), gradients, floats(), floats(), flag});
            }) == expected);
      CHECK(reported([&](const Tensor& flag) {
              const std::vector<Segment> segments{{0, 50000, true}, {50000, 20000, false}};
              device.backend.run(
                  ops::LarsUpdate{{0.1F, 0.9F, 0, 0.02F, 1e-9F}, segments, floats(), gradients, floats(), flag});
            }) == expected);
    }
  }
}
