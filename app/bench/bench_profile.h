// SPDX-License-Identifier: Apache-2.0
//
// convoy bench --profile: where the time of a step goes, by kind of operation and by layer, beside what this device can
// do at best. Every rank takes part in the steps; rank 0's operations are shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/build/build_run.h"
#include "layers/backend/observe/bounds.h"
#include "layers/backend/observe/profile_backend.h"

namespace convoy {

/// Mean of one step.
struct StepProfile {
  std::int64_t steps = 0;
  double step_seconds = 0;  ///< of the profiled ones
  std::map<ProfileKey, ProfileEntry> entries;
  DeviceBounds bounds;
  double convolution_bound = 0;  ///< seconds of the step's convolutions, each timed alone; 0: it has none
  /// The same by the library's direct algorithm; 0 where there is no other way.
  double direct_convolution_bound = 0;
};

/// Of a line of the report. Rates are over the whole line; those that mean nothing are 0.
struct ProfileLine {
  std::string name;
  std::int64_t calls = 0;  ///< a step
  double seconds = 0;      ///< a step
  double share = 0;        ///< of the step
  double flops_per_second = 0, bytes_per_second = 0;
  double of_bound = 0;  ///< what the device would have needed at best, by operations or bytes, over the time
};

/// By kind of operation, the longest first; the last one is what no operation took.
[[nodiscard]] std::vector<ProfileLine> lines_by_operation(const StepProfile& profile);

/// One layer: a unit's operations of one kind on one shape, forward and the two halves of backward.
struct LayerLine {
  std::string unit, layer;
  double forward = 0, backward_input = 0, backward_weight = 0;  ///< seconds a step
  double share = 0;
  double flops_per_second = 0, bytes_per_second = 0, of_bound = 0;
};

/// The longest first.
[[nodiscard]] std::vector<LayerLine> lines_by_layer(const StepProfile& profile);

/// The whole report: two tables and the bounds.
[[nodiscard]] std::string profile_report(const StepProfile& profile);

/// Times `steps` steps of a run that was built with Instrument::kProfile, after a warm-up of two.
[[nodiscard]] StepProfile profile_steps(Run& run, std::int64_t steps);

}  // namespace convoy
