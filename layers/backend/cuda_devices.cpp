// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda_devices.h"

#include <fmt/format.h>

#ifdef CONVOY_CUDA
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdlib>
#include <fstream>
#endif

namespace convoy {

std::string CudaDevice::description() const {
  return fmt::format("{}, compute capability {}.{}, {} GiB", name, major, minor, memory_bytes >> 30U);
}

#ifdef CONVOY_CUDA

namespace {

std::string cuda_version(int code) { return fmt::format("{}.{}", code / 1000, code % 1000 / 10); }

// cuDNN 9 and cuBLAS 11 and later: major * 10000 + minor * 100 + patch.
std::string library_version(std::size_t code) { return fmt::format("{}.{}", code / 10000, code / 100 % 100); }

std::string driver_version() {
  int cuda = 0;
  if (cudaDriverGetVersion(&cuda) != cudaSuccess || cuda == 0) return "";
  std::string module;
  std::ifstream("/sys/module/nvidia/version") >> module;
  return fmt::format("{}for CUDA {} and older", module.empty() ? "" : module + ", ", cuda_version(cuda));
}

CudaDevice device(int index) {
  CudaDevice found;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    found.name = fmt::format("GPU {} (CUDA gives no properties)", index);
    return found;
  }
  found.name = properties.name;
  found.major = properties.major;
  found.minor = properties.minor;
  found.memory_bytes = properties.totalGlobalMem;
  for (const char byte : properties.uuid.bytes) found.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return found;
}

std::vector<bool> peers_of(int from, int count) {
  std::vector<bool> row;
  for (int to = 0; to < count; ++to) {
    int can = 0;
    row.push_back(from != to && cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0);
  }
  return row;
}

std::string remedy(const CudaReport& report) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (report.driver.empty()) {
    return "install NVIDIA's driver, or start this container with its GPUs, as docker run --gpus all does";
  }
  if (visible != nullptr) {
    return fmt::format("CUDA_VISIBLE_DEVICES is \"{}\": unset it, or name GPUs that nvidia-smi lists", visible);
  }
  return fmt::format(
      "nvidia-smi lists the GPUs that the driver sees; in a Slurm job ask for some with --gpus-per-task=1; "
      "the driver must be one for CUDA {} or newer",
      cuda_version(CUDART_VERSION));
}

}  // namespace

std::vector<LibraryVersion> cuda_libraries() {
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  return {{"CUDA", cuda_version(CUDART_VERSION), cuda_version(runtime)},
          {"cuDNN", library_version(CUDNN_VERSION), library_version(cudnnGetVersion())},
          {"cuBLAS", library_version(CUBLAS_VERSION), library_version(cublasLtGetVersion())}};
}

CudaReport cuda_report() {
  // Streams share 8 ways to the GPU unless told otherwise, and what shares one waits for what is before it: a
  // pipeline's streams, which wait for other ranks, must not. Read when CUDA starts, so here, before the first call of
  // all.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  CudaReport report;
  report.driver = driver_version();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) {
    for (int i = 0; i < count; ++i) report.devices.push_back(device(i));
    for (int i = 0; i < count; ++i) report.peers.push_back(peers_of(i, count));
  }
  cudaGetLastError();  // what was reported here is no failure of what comes next
  if (!report.devices.empty()) return report;
  report.problem = report.driver.empty()   ? "no NVIDIA driver is loaded"
                   : status == cudaSuccess ? "no GPU is visible"
                                           : cudaGetErrorString(status);
  report.remedy = remedy(report);
  return report;
}

#else

std::vector<LibraryVersion> cuda_libraries() { return {}; }

CudaReport cuda_report() {
  CudaReport report;
  report.problem = "this build has no CUDA";
  report.remedy = "configure with --preset cuda";
  return report;
}

#endif

}  // namespace convoy
