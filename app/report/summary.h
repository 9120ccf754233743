// SPDX-License-Identifier: Apache-2.0
//
// The figures of a run that fit into a row of a table. Relies on phases.h for times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace convoy {

struct Summary {
  std::string state;   ///< "finished", "stopped by a signal", "running (HOST, pid N)", ...
  std::string device;  ///< as the last start says
  std::string ranks;   ///< "2 = 2 x 1", with those of earlier starts before it: "4 = 2 x 2, then 2 = 1 x 2"
  std::int64_t steps = 0, total_steps = 0;  ///< done, to be done (0: unknown)
  std::string epochs;                       ///< begun or done
  double train_loss = 0;                    ///< of the last step; NaN: none
  std::string best;              ///< best top-1, or the least validation loss where there is no accuracy; "-": none
  std::string best_at;           ///< "epoch 3"
  double images_per_second = 0;  ///< median
  double seconds = 0;            ///< in steps, evaluations and stalls
  std::size_t restarts = 0;
};

[[nodiscard]] Summary summarize_run(const ReportRun& run);

/// A table with a row for each run.
[[nodiscard]] std::string summary_table(const std::vector<ReportRun>& runs);

}  // namespace convoy
