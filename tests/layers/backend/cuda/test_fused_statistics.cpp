// SPDX-License-Identifier: Apache-2.0
//
// Batch norm statistics that a convolution computes of its output, where the mean is large beside the deviation: sums
// in float32 around a pivot that is far away lose the variance, which then has to come from the values.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layers/base/random.h"
#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/backend/random_data.h"

using namespace convoy;

namespace {

constexpr std::int64_t kChannels = 8;

// Of so many values, of which `high` are 1 + step and the others 1.
struct Expected {
  double mean, variance;
  Expected(std::int64_t count, std::int64_t high, double step)
      : mean(1 + step * static_cast<double>(high) / static_cast<double>(count)),
        variance((mean - 1) * (1 + step - mean)) {}
};

}  // namespace

TEST_CASE("statistics of a convolution are right where the mean is thousands of deviations") {
  struct Case {
    DType compute;
    double step;  // between 1 and the next number
  };
  for (const auto& [compute, step] : {Case{DType::kBF16, 0x1p-7}, Case{DType::kF16, 0x1p-10}}) {
    CudaOptions options;
    options.compute = compute;
    options.time_plans = false;
    CudaBackend gpu(options);
    RandomData data(gpu);
    const Shape shape{4, kChannels, 23, 17};
    const Conv2dSpec identity(kChannels, kChannels);
    const auto layout = gpu.conv2d_layout(identity, shape);
    std::vector<float> unit(kChannels * kChannels, 0.0F), images(static_cast<std::size_t>(shape.size()));
    for (std::size_t i = 0; i < kChannels; ++i) unit[i * kChannels + i] = 1;
    std::vector<std::int64_t> high(kChannels, 0);
    for (std::size_t i = 0; i < images.size(); ++i) {  // channels last
      // Channel 0 is constant; the others have more and more of the larger number.
      const bool larger = random_uniform(5, i) * kChannels < static_cast<double>(i % kChannels);
      images[i] = static_cast<float>(larger ? 1 + step : 1);
      high[i % kChannels] += larger ? 1 : 0;
    }
    Weight weight;
    weight.layout = layout.get();
    weight.master = gpu.tensor({layout->elements()}, DType::kF32);
    gpu.import_weight(*layout, unit.data(), weight.master);
    gpu.refresh_compute(weight);
    const Tensor floats = gpu.tensor(shape, DType::kF32), x = data.output(shape), y = data.output(shape);
    gpu.copy_from_host(images.data(), floats);
    gpu.run(ops::Cast{floats, x});
    const Shape channels{kChannels};
    for (const float guess : {0.0F, 1.0F, -30.0F}) {
      const std::vector<float> pivots(kChannels, guess);
      const Tensor pivot = data.output_f32(channels), mean = data.output_f32(channels),
                   variance = data.output_f32(channels);
      gpu.copy_from_host(pivots.data(), pivot);
      const ops::BatchNormStatistics epilogue{y, mean, variance, ops::none(), ops::none(), 0, pivot};
      const ops::Conv2dForward op{identity, x, weight, nullptr, y, nullptr, &epilogue};
      REQUIRE(gpu.fuses(op));
      gpu.run(op);
      std::vector<float> means(kChannels), variances(kChannels);
      gpu.copy_to_host(mean, means.data());
      gpu.copy_to_host(variance, variances.data());
      for (std::size_t c = 0; c < kChannels; ++c) {
        CAPTURE(std::string(dtype_name(compute)));
        CAPTURE(guess);
        CAPTURE(c);
        const Expected expected(shape.size() / kChannels, high[c], step);
        // A float near 1; sums of 1564 squares whose own rounding is 6e-8 of them.
        CHECK(std::abs(means[c] - expected.mean) <= 1e-7);
        CHECK(std::abs(variances[c] - expected.variance) <= 1e-5 * expected.variance);
      }
    }
  }
}
