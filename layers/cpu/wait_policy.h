// SPDX-License-Identifier: Apache-2.0
//
// How threads and ranks wait for each other, as the user chooses it.
#pragma once

#include "layers/base/options.h"

namespace convoy {

/// OpenMP's terms: active waits spin, passive ones block and so leave the CPU to others. Auto: passive while threads
/// compete for CPUs.
enum class WaitPolicy { kAuto, kActive, kPassive };
CONVOY_OPTION_ENUM(WaitPolicy, "auto", "active", "passive");

}  // namespace convoy
