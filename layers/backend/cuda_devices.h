// SPDX-License-Identifier: Apache-2.0
//
// What this machine's GPUs look like to this build: which there are, what stands between them and a run, and the
// libraries. Exists in every build; one without CUDA finds nothing and says so. Makes no context on any GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace convoy {

#ifdef CONVOY_CUDA
inline constexpr bool kCudaBuilt = true;
#else
inline constexpr bool kCudaBuilt = false;
#endif

/// A library as this program was compiled with it and as it is here: "13.0" and "13.1".
struct LibraryVersion {
  std::string name, built, found;
};

struct CudaDevice {
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< 32 hexadecimal digits; no other GPU in the world has them
  int major = 0, minor = 0;
  std::size_t memory_bytes = 0;
  /// "NVIDIA H200, compute capability 9.0, 139 GiB"
  [[nodiscard]] std::string description() const;
};

struct CudaReport {
  std::string driver;                    ///< "580.65.06, for CUDA 13.0 and older"; empty: there is none
  std::vector<CudaDevice> devices;       ///< visible to this process
  std::vector<std::vector<bool>> peers;  ///< [from][to]: whether one can read the other's memory
  std::string problem;                   ///< why there are no devices, the runtime's message; empty when there are some
  std::string remedy;                    ///< what to do about it
};

[[nodiscard]] CudaReport cuda_report();
/// The CUDA runtime, cuDNN, cuBLAS; none in a build without CUDA.
[[nodiscard]] std::vector<LibraryVersion> cuda_libraries();

}  // namespace convoy
