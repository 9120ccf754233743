// SPDX-License-Identifier: Apache-2.0
//
// What comes before the first NCCL communicator: variables that NCCL reads once per process, and ids. Private to
// parallel/nccl_*.
#pragma once

#include <string>

#include "parallel/comm/nccl/nccl_communicator.h"

namespace convoy {

/// Sets this process's NCCL variables, at its first call only.
void prepare_nccl(const NcclOptions& options);
/// A fresh id to make one NCCL communicator with, as bytes that can travel.
[[nodiscard]] std::string new_nccl_id();

}  // namespace convoy
