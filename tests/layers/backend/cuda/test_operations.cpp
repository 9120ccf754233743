// SPDX-License-Identifier: Apache-2.0
//
// Every operation of the CUDA backend against the CPU backend's, in every precision: at odd sizes, and at those of
// ResNet-50.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/backend/every_operation.h"
#include "tests/layers/backend/nan_backend.h"

using namespace convoy;

namespace {

struct Convolution {
  Conv2dSpec spec;
  std::int64_t size;  // of the square input
  bool operator==(const Convolution&) const = default;
};

// Each once, for images of 224x224 (He et al. 2016; the stride of a block in its 3x3 convolution, as in torchvision).
std::vector<Convolution> convolutions_of_resnet50() {
  std::vector<Convolution> all{{{3, 64, 7, 2, 3}, 224}};
  const auto add = [&](const Conv2dSpec& spec, std::int64_t size) {
    const Convolution convolution{spec, size};
    if (std::find(all.begin(), all.end(), convolution) == all.end()) all.push_back(convolution);
  };
  std::int64_t channels = 64, size = 56;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    const std::int64_t stride = width == 64 ? 1 : 2, out = 4 * width;
    add({channels, width, 1, 1, 0}, size);
    add({width, width, 3, stride, 1}, size);
    add({channels, out, 1, stride, 0}, size);  // the shortcut
    size /= stride;
    channels = out;
    add({width, out, 1, 1, 0}, size);
    add({out, width, 1, 1, 0}, size);  // further blocks
    add({width, width, 3, 1, 1}, size);
  }
  return all;
}

}  // namespace

TEST_CASE("every operation agrees with the CPU's at odd sizes") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    for (const auto& [batch, channels] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 3}, {2, 5}, {9, 7}, {2, 64}, {kOnHost ? 3 : 9, 65}}) {
      call_every_operation(backends.backend, batch, channels, [&](const auto& part) { attempt(precision.name, part); });
    }
  });
}

TEST_CASE("convolutions fused with batch norms agree with the CPU's") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    for (const std::int64_t channels : {8, 24, 12, 3}) {
      for (const Conv2dSpec& spec : {Conv2dSpec{channels, 16, 1, 1, 0}, Conv2dSpec{channels, 8, 3, 1, 1},
                                     Conv2dSpec{channels, 40, 3, 2, 1}, Conv2dSpec{channels, 16, 1, 2, 0}}) {
        const Shape input{3, channels, 10, 7};
        attempt(fmt::format("{}, {}", precision.name, ops::conv2d_detail(spec, input)),
                [&] { call_fused(backends.backend, spec, input); });
      }
    }
  });
}

TEST_CASE("every operation propagates NaN from every operand") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    NanBackend backend(backends.gpu);
    call_every_operation(backend, 2, 5, [&](const auto& part) { attempt(precision.name, part); });
    call_every_operation(backend, kOnHost ? 2 : 9, 64, [&](const auto& part) { attempt(precision.name, part); });
    std::string lost;
    for (const std::string& operand : backend.swallowed()) lost += operand + "\n";
    CHECK_MESSAGE(lost == "", std::string(precision.name));
  });
}

TEST_CASE("tensors without elements and of one element are taken") {
  for_each_precision([](CheckedGpu& backends, const Precision& precision) {
    for (const std::int64_t count : {0, 1}) {
      attempt(precision.name, [&] { call_elementwise(backends.backend, count); });
      attempt(precision.name, [&] { call_updates(backends.backend, count); });
    }
  });
}

TEST_CASE("arrays that need many blocks agree with the CPU's") {
  const std::int64_t elements = kOnHost ? 300'003 : 5'000'003, samples = kOnHost ? 40 : 300;
  for_each_precision([&](CheckedGpu& backends, const Precision& precision) {
    attempt(precision.name, [&] { call_elementwise(backends.backend, elements); });
    attempt(precision.name, [&] { call_updates(backends.backend, elements); });
    attempt(precision.name, [&] { call_losses(backends.backend, samples, 1000); });
    attempt(precision.name,
            [&] { call_linear(backends.backend, kOnHost ? 17 : 257, 1025, kOnHost ? 33 : 1000, true); });
  });
}

TEST_CASE("the layers of ResNet-50 at 224x224 agree with the CPU's" * doctest::skip(kOnHost)) {
  constexpr std::int64_t kBatch = 4;
  const std::vector<Convolution> convolutions = convolutions_of_resnet50();
  CHECK(convolutions.size() == 23);
  for_each_precision([&](CheckedGpu& backends, const Precision& precision) {
    Backend& backend = backends.backend;
    std::vector<Shape> normalized;
    for (const Convolution& convolution : convolutions) {
      const Conv2dSpec& spec = convolution.spec;
      const std::int64_t size = convolution.size;
      attempt(precision.name, [&] { call_conv2d(backend, spec, {kBatch, spec.in_channels, size, size}, false); });
      const Shape output = spec.output_shape({kBatch, spec.in_channels, size, size});
      if (std::find(normalized.begin(), normalized.end(), output) == normalized.end()) normalized.push_back(output);
    }
    for (const Shape& shape : normalized) attempt(precision.name, [&] { call_batch_norm(backend, shape); });
    attempt(precision.name, [&] { call_max_pool(backend, {3, 2, 1}, {kBatch, 64, 112, 112}); });
    attempt(precision.name, [&] { call_image_operations(backend, {kBatch, 3, 224, 224}); });
    attempt(precision.name, [&] { call_image_operations(backend, {kBatch, 2048, 7, 7}); });
    attempt(precision.name, [&] { call_linear(backend, kBatch, 2048, 1000, true); });
    attempt(precision.name, [&] { call_losses(backend, kBatch, 1000); });
  });
}
