// SPDX-License-Identifier: Apache-2.0
//
// GPUs by description: cuDNN's heuristics and checks of support answer for them on a machine without one. Plans that
// are compiled at run time also want libcuda to be there; the toolkit's stub is enough.
#pragma once

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace convoy {

/// What cuDNN's heuristics know of a GPU.
struct DescribedGpu {
  const char* name;
  int compute_capability;  ///< 90 for 9.0
  int multiprocessors;
  int shared_memory;  ///< bytes, per block at most
  int l2_cache;       ///< bytes
  std::int64_t memory;
  int clock, memory_clock;  ///< kHz
  int memory_bus;           ///< bits
};

inline constexpr DescribedGpu kA100{
    "NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040, 85198045184, 1410000, 1593000, 5120};
inline constexpr DescribedGpu kH100{
    "NVIDIA H100 80GB HBM3", 90, 132, 232448, 52428800, 85029158912, 1980000, 2619000, 5120};
inline constexpr DescribedGpu kH200{"NVIDIA H200", 90, 132, 232448, 62914560, 150754820096, 1980000, 3201000, 6144};

inline void check_frontend(cudnn_frontend::error_t error) {
  if (error.is_bad()) throw std::runtime_error(error.get_message());
}

/// As cuDNN 9.19 and 9.28 want it. Throws what cuDNN says of a description that it does not take.
inline std::shared_ptr<const cudnn_frontend::DeviceProperties> device_properties(const DescribedGpu& gpu) {
  const std::string json = fmt::format(
      R"({{"deviceVer": {}, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535],)"
      R"( "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": {}, "smCountOrigin": 0,)"
      R"( "warpSize": 32,)"
      R"( "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {}, "reservedSharedMemoryPerBlock": 1024,)"
      R"( "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,)"
      R"( "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": {}, "memClockRateKHz": {},)"
      R"( "memoryBusWidth": {}, "oversizedSharedMemoryPerBlock": 0, "l2CacheSize": {}, "deviceName": "{}",)"
      R"( "totalGlobalMem": {}, "cudaDeviceId": 0}})",
      10 * gpu.compute_capability, gpu.multiprocessors, gpu.shared_memory, gpu.clock, gpu.memory_clock, gpu.memory_bus,
      gpu.l2_cache, gpu.name, gpu.memory);
  auto properties = std::make_shared<cudnn_frontend::DeviceProperties>();
  check_frontend(properties->deserialize(std::vector<std::uint8_t>(json.begin(), json.end())));
  return properties;
}

}  // namespace convoy
