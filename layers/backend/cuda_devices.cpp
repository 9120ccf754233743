// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda_devices.h"

#include <fmt/format.h>

#ifdef CONVOY_CUDA
#include <cuda_runtime_api.h>
#endif

namespace convoy {

#ifdef CONVOY_CUDA

CudaReport cuda_report() {
  CudaReport report;
  report.built = true;
  int runtime = 0;
  int driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);  // stays 0 without a driver
  report.versions = fmt::format("CUDA runtime {}.{}, driver {}", runtime / 1000, runtime % 1000 / 10,
                                driver == 0 ? "none" : fmt::format("{}.{}", driver / 1000, driver % 1000 / 10));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    report.problem = cudaGetErrorString(status);
    return report;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    report.devices.push_back(fmt::format("{}, compute capability {}.{}, {} GiB", properties.name, properties.major,
                                         properties.minor, properties.totalGlobalMem >> 30));
  }
  if (report.devices.empty()) report.problem = "no CUDA device is visible";
  return report;
}

#else

CudaReport cuda_report() { return {false, "", {}, "this build has no CUDA (configure with --preset cuda)"}; }

#endif

}  // namespace convoy
