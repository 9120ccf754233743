// SPDX-License-Identifier: Apache-2.0
//
// What this machine's GPUs look like to this build, for `convoy doctor` and for the error on device.kind = "cuda".
// Needs the CUDA runtime only when the build has it (CONVOY_CUDA); the operations of a CUDA backend are not in this
// version.
#pragma once

#include <string>
#include <vector>

namespace convoy {

struct CudaReport {
  bool built = false;                ///< this build knows the CUDA runtime
  std::string versions;              ///< "CUDA runtime 13.0, driver 13.0"; empty when not built
  std::vector<std::string> devices;  ///< "NVIDIA H200, compute capability 9.0, 139 GiB"
  std::string problem;               ///< why there are none, in the runtime's words; empty when there are some
};

CudaReport cuda_report();

}  // namespace convoy
