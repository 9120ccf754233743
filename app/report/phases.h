// SPDX-License-Identifier: Apache-2.0
//
// Where a run's time went, from its metrics. Invariant: no phase is negative, and the phases of the steps add up to the
// time in steps.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace convoy {

inline constexpr std::size_t kRunPhaseCount = 5;

struct RunPhase {
  const char* name;
  const char* css;  ///< the class of its colour
};
inline constexpr std::array<RunPhase, kRunPhaseCount> kRunPhases = {{{"computing", "p0"},
                                                                     {"waiting for data", "p1"},
                                                                     {"waiting for other ranks", "p2"},
                                                                     {"evaluation", "p3"},
                                                                     {"standing still for checkpoints", "p4"}}};

/// Seconds, in the order of kRunPhases. A logged step stands for the steps since the one before it (log.every_steps);
/// waits are those of the median rank, or of the only one; evaluations that older versions did not time count nothing.
using PhaseTimes = std::array<double, kRunPhaseCount>;
[[nodiscard]] PhaseTimes phase_times(const RunMetrics& run);

[[nodiscard]] double total_time(const PhaseTimes& times);

/// A bar for each run, with a legend; empty when no run has times.
[[nodiscard]] std::string draw_phases(const std::vector<ReportRun>& runs);

/// A table of who held the others up, from the health events; empty when no run has any.
[[nodiscard]] std::string straggler_table(const std::vector<ReportRun>& runs);

}  // namespace convoy
