// SPDX-License-Identifier: Apache-2.0
//
// The Error of a failed CUDA, cuDNN or cuBLAS call.
#include "layers/backend/cuda/cuda_check.h"

#include <string_view>

namespace convoy {

std::string current_gpu() noexcept {
  try {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return "a GPU";
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return fmt::format("GPU {}", device);
    return fmt::format("GPU {} ({})", device, properties.name);
  } catch (...) {
    return "a GPU";
  }
}

void fail_gpu_call(const char* call, const char* file, int line, const std::string& words) {
  cudaGetLastError();  // an error that does not stick to the GPU must not fail the next launch
  const std::string_view path = file;
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  fail("{} at {}:{} on {}: {}", call, name, line, current_gpu(), words);
}

}  // namespace convoy
