// SPDX-License-Identifier: Apache-2.0
//
// What this process does between its exchanges with other ranks, for hang reports.
#pragma once

#include <string_view>

namespace convoy {

/// Says what this rank works on from now on ("reading data", "evaluating", "writing a checkpoint"), until its next
/// operation or the next call. Costs less than a microsecond; does nothing while there is no World. From any thread.
void note_activity(std::string_view what) noexcept;

}  // namespace convoy
