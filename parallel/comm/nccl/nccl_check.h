// SPDX-License-Identifier: Apache-2.0
//
// Turns NCCL's results into Errors and text. Private to parallel/nccl_*: it brings in nccl.h.
#pragma once

#include <nccl.h>

#include <string>

#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

/// What kind of failure, and what NCCL had to say last, perhaps of something else.
[[nodiscard]] inline std::string describe_nccl_error(ncclResult_t result) {
  const char* last = ncclGetLastError(nullptr);
  const std::string kind = ncclGetErrorString(result);
  return last == nullptr || *last == '\0' ? kind : fmt::format("{} (last words: {})", kind, last);
}

}  // namespace convoy

/// For calls that end before they return.
#define CONVOY_NCCL_CHECK(call)                                                                         \
  do {                                                                                                  \
    const ncclResult_t convoy_status = (call);                                                          \
    if (convoy_status != ncclSuccess) {                                                                 \
      ::convoy::fail_gpu_call(#call, __FILE__, __LINE__, ::convoy::describe_nccl_error(convoy_status)); \
    }                                                                                                   \
  } while (false)
