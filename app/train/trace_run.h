// SPDX-License-Identifier: Apache-2.0
//
// Merges the trace events of all ranks into one file, on rank 0's clock.
#pragma once

#include <string>

#include "app/build/build_run.h"

namespace convoy {

/// Stops recording, gathers the events of all ranks on rank 0 and writes them there. Collective.
void write_trace(Run& run, const std::string& path);

}  // namespace convoy
