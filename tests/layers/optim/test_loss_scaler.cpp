// SPDX-License-Identifier: Apache-2.0
//
// Dynamic loss scaling: when the scale grows and shrinks, and what happens to gradients.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"
#include "layers/optim/loss_scaler.h"

using namespace convoy;

TEST_CASE("a scaler that is off changes nothing and looks at nothing") {
  OnednnBackend backend(1, DType::kF32);
  LossScaler scaler;
  CHECK(scaler.scale() == 1.0);
  CHECK(scaler.unscale(backend, Tensor()));  // an empty tensor would be looked at in vain
  scaler.finish(false, 0);
  scaler.restore(8);
  CHECK(scaler.scale() == 1.0);
}

TEST_CASE("the scale in memory changes its value and not its place") {
  OnednnBackend backend(1, DType::kF32);
  DeviceLossScale none(backend, false), scale(backend, true);
  none.set(8);
  CHECK_FALSE(none.tensor());
  scale.set(65536);
  const void* place = scale.tensor().raw();
  CHECK(*scale.tensor().data<float>() == 65536.0F);
  scale.set(1);
  CHECK(*scale.tensor().data<float>() == 1.0F);
  CHECK(scale.tensor().raw() == place);
}

TEST_CASE("the scale doubles at every 2000th update and halves after an overflow, within its bounds") {
  LossScaler scaler(true);
  CHECK(scaler.scale() == 65536.0);
  for (std::int64_t update = 0; update < 1999; ++update) scaler.finish(true, update);
  CHECK(scaler.scale() == 65536.0);
  scaler.finish(true, 1999);
  CHECK(scaler.scale() == 131072.0);
  scaler.finish(false, 3999);  // an overflow there does not grow it
  CHECK(scaler.scale() == 65536.0);
  for (int i = 0; i < 40; ++i) scaler.finish(false, 4000 + i);
  CHECK(scaler.scale() == 1.0);
  for (std::int64_t i = 1; i <= 40; ++i) scaler.finish(true, 2000 * i - 1);
  CHECK(scaler.scale() == LossScaler::kMax);
  scaler.restore(256);
  CHECK(scaler.scale() == 256.0);
  scaler.restore(0);
  scaler.restore(std::numeric_limits<double>::quiet_NaN());
  CHECK(scaler.scale() == 256.0);
}

TEST_CASE("finite gradients are divided exactly, others are left and refused") {
  OnednnBackend backend(2, DType::kF32);
  const LossScaler scaler(true);
  std::vector<float> values(70001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37F - 9000.0F;
  std::vector<float> scaled = values;
  for (float& value : scaled) value *= 65536.0F;
  const Tensor gradients = backend.tensor({70001}, DType::kF32);
  std::vector<float> result(values.size());
  backend.copy_from_host(scaled.data(), gradients);
  REQUIRE(scaler.unscale(backend, gradients));
  backend.copy_to_host(gradients, result.data());
  CHECK(result == values);  // a power of two: no rounding
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{35000}, values.size() - 1}) {
      std::vector<float> spoiled = scaled;
      spoiled[place] = bad;
      backend.copy_from_host(spoiled.data(), gradients);
      CHECK_FALSE(scaler.unscale(backend, gradients));
      backend.copy_to_host(gradients, result.data());
      CHECK(result[1] == scaled[1]);
    }
  }
}
