// SPDX-License-Identifier: Apache-2.0
//
// A schedule as a grid for people: one row per stage, one column per unit of time (forward 1, each half of backward 1).
#pragma once

#include <string>

#include "parallel/schedule/schedule.h"

namespace convoy {

/// Ends with two lines: step length, bubble share and the most activations in flight. With `color`, forwards, backwards
/// and their halves have ANSI colours, by kind and chunk.
[[nodiscard]] std::string schedule_grid(const Schedule& schedule, bool color);

}  // namespace convoy
