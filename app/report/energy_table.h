// SPDX-License-Identifier: Apache-2.0
//
// The energy of runs on the page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace convoy {

/// What the step events of a run say, evaluations and checkpoints between the steps included.
struct RunEnergy {
  double joules = 0;
  std::int64_t steps = 0;  ///< up to the last one with a reading
  double samples = 0;      ///< of these
  double epochs = 0;       ///< of these, as steps of the run's epochs
};
[[nodiscard]] RunEnergy energy_of(const RunMetrics& run);

/// A table of the runs whose energy was read; empty when there are none.
[[nodiscard]] std::string energy_table(const std::vector<ReportRun>& runs);

}  // namespace convoy
