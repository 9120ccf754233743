// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the CUDA backend share: its precisions with their tolerances, a GPU beside a CPU, and a way to go
// on to the next case after one that failed, so that one run tells all that is wrong.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/observe/compare_backend.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/error.h"
#include "layers/models/models.h"

namespace convoy {

#ifdef CONVOY_CUDA_ON_HOST
inline constexpr bool kOnHost = true;  ///< host/: the kernels run on the CPU, which takes long
#else
inline constexpr bool kOnHost = false;
#endif

struct Precision {
  const char* name;
  DType compute;
  bool tf32;
  double tolerance;   ///< for one operation, see CompareBackend
  double loss_scale;  ///< keeps small gradients in range
};

// TF32 cuts factors off after 10 bits of mantissa, each up to 2^-10 of its size; sums with cancellation show more of
// it.
inline constexpr Precision kPrecisions[] = {{"fp32", DType::kF32, false, 1e-5, 1},
                                            {"tf32", DType::kF32, true, 3e-3, 1},
                                            {"bf16", DType::kBF16, false, 1e-2, 1},
                                            {"fp16", DType::kF16, false, 1e-2, 8192}};

inline CudaOptions cuda_options(const Precision& precision) {
  CudaOptions options;
  options.compute = precision.compute;
  options.tf32 = precision.tf32;
  options.time_plans = false;  // of hundreds of shapes, each for up to a second; training and benchmarks do it
  return options;
}

/// float32, equal inputs give equal bits.
inline CudaOptions deterministic_options() {
  CudaOptions options;
  options.deterministic = true;
  return options;
}

inline int cpu_threads() {
  return kOnHost ? 1 : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
}

/// A ResNet; on the host a few of its parts.
inline std::vector<Unit> residual_network(int depth, Stem stem, std::int64_t outputs) {
  if (!kOnHost) return resnet_model(depth, stem, outputs);
  return sequential_model({{"conv", Conv2dOptions{.out_channels = 4, .kernel_size = 3, .padding = 1, .bias = false}},
                           {"bn", BatchNorm2dOptions{}},
                           {"relu", ReluOptions{}},
                           {"block", BasicBlockOptions{.channels = 8, .stride = 2}},
                           {"pool", GlobalAvgPoolOptions{}},
                           {"fc", LinearOptions{.out_features = outputs}}});
}

/// The input [N, 3, size, size] of one; smaller on the host.
inline Shape image_shape(std::int64_t batch, std::int64_t size) {
  return kOnHost ? Shape{4, 3, 8, 8} : Shape{batch, 3, size, size};
}

/// A GPU whose every operation is compared with the CPU's.
struct CheckedGpu {
  CudaBackend gpu;
  OnednnBackend cpu;
  CompareBackend backend;
  explicit CheckedGpu(const Precision& precision)
      : gpu(cuda_options(precision)), cpu(cpu_threads(), DType::kF32), backend(gpu, cpu, precision.tolerance) {
    gpu.pool().keep_sizes_exact();
  }
};

/// Runs one case. What it throws fails the test with `what` before it, and the next case still runs.
template <class Case>
void attempt(const std::string& what, const Case& run) {
  try {
    run();
  } catch (const std::exception& e) {
    FAIL_CHECK(fmt::format("{}: {}", what, e.what()));  // doctest shows the address of a char*
  }
}

/// test(backends, precision) in every precision that the GPU has; TF32 is float32 on the host.
template <class Test>
void for_each_precision(const Test& test) {
  for (const Precision& precision : kPrecisions) {
    if (kOnHost && precision.tf32) continue;
    std::unique_ptr<CheckedGpu> backends;
    try {
      backends = std::make_unique<CheckedGpu>(precision);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kUsage || &precision == kPrecisions) throw;
      MESSAGE(fmt::format("{} skipped: {}", precision.name, e.what()));
      continue;
    }
    test(*backends, precision);
  }
}

}  // namespace convoy
