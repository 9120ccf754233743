// SPDX-License-Identifier: Apache-2.0
//
// The activity of this process between communication operations, for hang reports.
#pragma once

#include <string_view>

namespace convoy {

/// Sets the activity of this rank ("reading data", "evaluating", "writing a checkpoint") until its next operation or
/// the next call. Takes less than a microsecond; no effect without a World. Thread-safe.
void note_activity(std::string_view what) noexcept;

}  // namespace convoy
