// SPDX-License-Identifier: Apache-2.0
//
// Copies between host and GPU, and what the host learns from it: order, sizes, neighbours of views, values that are not
// finite, labels that are no classes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/base/error.h"
#include "tests/layers/backend/random_data.h"

using namespace convoy;

namespace {

std::vector<float> on_host(CudaBackend& gpu, const Tensor& x) {
  std::vector<float> host(static_cast<std::size_t>(x.size()));
  gpu.copy_to_host(x, host.data());
  return host;
}

/// Different for each tensor and element, exact in float32.
void fill(std::vector<float>& host, std::size_t tensor) {
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>((i * 7 + tensor * 13) % 1'000'003);
}

}  // namespace

TEST_CASE("a copy's source may be used again at once") {
  CudaBackend gpu{CudaOptions{}};
  // Around 256 KiB and 8 MiB, where the way of a copy changes, and far beyond.
  for (const std::int64_t size : {1, 3, 1000, 65535, 65536, 65537, 2097151, 2097152, 2097153, 50'000'000}) {
    CAPTURE(size);
    const std::size_t tensors = size > 10'000'000 ? 3 : 12;
    std::vector<float> host(static_cast<std::size_t>(size));
    std::vector<Tensor> copies;
    for (std::size_t i = 0; i < tensors; ++i) {
      fill(host, i);
      copies.push_back(gpu.tensor({size}, DType::kF32));
      gpu.copy_from_host(host.data(), copies.back());
      std::fill(host.begin(), host.end(), -1.0F);
    }
    int wrong = 0;
    for (std::size_t i = 0; i < tensors; ++i) {
      fill(host, i);
      wrong += on_host(gpu, copies[i]) == host ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a thousand small copies in a row arrive") {
  CudaBackend gpu{CudaOptions{}};
  std::vector<Tensor> copies;  // before the first copy: new memory may wait for the GPU
  for (int i = 0; i < 1000; ++i) copies.push_back(gpu.tensor({1}, DType::kF32));
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<float>(i);
    gpu.copy_from_host(&value, copies[static_cast<std::size_t>(i)]);
  }
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) wrong += on_host(gpu, copies[static_cast<std::size_t>(i)])[0] == i ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("copies take effect in the order of the calls, also into what earlier operations read") {
  CudaBackend gpu{CudaOptions{}};
  for (const std::int64_t size : {100, 3'000'000}) {
    CAPTURE(size);
    const Tensor x = gpu.tensor({size}, DType::kF32), sum = gpu.tensor({size}, DType::kF32);
    std::vector<float> host(static_cast<std::size_t>(size));
    gpu.zero(sum);
    float total = 0;
    for (int i = 1; i <= 100; ++i) {
      std::fill(host.begin(), host.end(), static_cast<float>(i));
      gpu.copy_from_host(host.data(), x);
      gpu.run(ops::Axpy{1.0F, x, sum});
      total += static_cast<float>(i);
    }
    std::fill(host.begin(), host.end(), total);
    CHECK(on_host(gpu, sum) == host);
  }
}

TEST_CASE("freed memory may be written by the host at once") {
  CudaBackend gpu{CudaOptions{}};
  const std::int64_t size = 3'000'000;
  std::vector<float> host(static_cast<std::size_t>(size));
  const Tensor sum = gpu.tensor({size}, DType::kF32);
  gpu.zero(sum);
  for (int i = 1; i <= 50; ++i) {
    std::fill(host.begin(), host.end(), static_cast<float>(i));
    const Tensor x = gpu.tensor({size}, DType::kF32);  // the block of the round before
    gpu.copy_from_host(host.data(), x);
    gpu.run(ops::Axpy{1.0F, x, sum});
  }
  std::fill(host.begin(), host.end(), 50.0F * 51 / 2);
  CHECK(on_host(gpu, sum) == host);
}

TEST_CASE("operations on a view leave its neighbours alone") {
  CudaBackend gpu{CudaOptions{}};
  for (const std::int64_t size : {1, 5, 16, 1000, 100'001}) {
    for (const std::int64_t first : {0, 1, 4}) {
      CAPTURE(size);
      CAPTURE(first);
      std::vector<float> expected(static_cast<std::size_t>(size + 8), 2.0F);
      const Tensor whole = gpu.tensor({size + 8}, DType::kF32), ones = gpu.tensor({size}, DType::kF32);
      gpu.copy_from_host(expected.data(), whole);
      gpu.copy_from_host(std::vector<float>(static_cast<std::size_t>(size), 1.0F).data(), ones);
      const Tensor view = whole.view(first, {size});
      const auto set = [&](float value) {
        std::fill_n(expected.begin() + first, size, value);
        CHECK(on_host(gpu, whole) == expected);
      };
      gpu.run(ops::Scale{3, view, view});
      set(6);
      gpu.run(ops::Axpy{2, ones, view});
      set(8);
      gpu.run(ops::Cast{ones, view});
      set(1);
      gpu.zero(view);
      set(0);
      gpu.run(ops::SgdUpdate{{1, 0, 0, false}, view, ones, Tensor()});
      set(-1);
    }
  }
}

TEST_CASE("values that are not finite are found wherever they are") {
  CudaBackend gpu{CudaOptions{}};
  for (const std::int64_t size : {1, 2, 3, 4, 5, 1000, 4'000'003}) {
    CAPTURE(size);
    std::vector<float> host(static_cast<std::size_t>(size), std::numeric_limits<float>::max());
    const Tensor x = gpu.tensor({size}, DType::kF32);
    gpu.copy_from_host(host.data(), x);
    CHECK(gpu.all_finite(x));
    for (const float wrong : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
        gpu.copy_from_host(&wrong, x.view(at, {1}));
        CHECK_FALSE(gpu.all_finite(x));
        gpu.copy_from_host(host.data(), x.view(at, {1}));
      }
    }
    CHECK(gpu.all_finite(x));
  }
  CHECK(gpu.all_finite(gpu.tensor({0}, DType::kF32)));
}

TEST_CASE("a label that is no class is an error of the next wait, once") {
  CudaBackend gpu{CudaOptions{}};
  RandomData data(gpu);
  const Tensor logits = data.activations({4, 5}), totals = data.totals();
  for (const std::int64_t wrong : {std::int64_t{5}, std::int64_t{-1}}) {
    const Tensor labels = data.labels(4, 5);
    gpu.copy_from_host(&wrong, labels.view(2, {1}));
    gpu.run(ops::SoftmaxCrossEntropy{logits, labels, ops::none(), 0, 1, data.output({4, 5}), totals});
    CHECK_THROWS_WITH_AS(gpu.synchronize(), doctest::Contains("of sample 2"), Error);
    CHECK_NOTHROW(gpu.synchronize());
    gpu.run(ops::PointwiseLoss{logits, labels, ops::none(), 1, data.output({4, 5}), totals});
    CHECK_THROWS_WITH_AS(gpu.synchronize(), doctest::Contains("outside 0 to 4"), Error);
  }
}

TEST_CASE("a GPU that is not there is a usage error") {
  CudaOptions options;
  options.device = 1000;
  try {
    CudaBackend gpu(options);
    FAIL("was accepted");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kUsage);
  }
}
