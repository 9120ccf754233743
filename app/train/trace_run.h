// SPDX-License-Identifier: Apache-2.0
//
// What all ranks recorded, as one trace on rank 0's clock.
#pragma once

#include <string>

#include "app/build/build_run.h"

namespace convoy {

/// Stops recording, brings the events of all ranks to rank 0 and writes them there. Every rank calls it.
void write_trace(Run& run, const std::string& path);

}  // namespace convoy
