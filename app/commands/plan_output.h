// SPDX-License-Identifier: Apache-2.0
//
// What convoy plan prints and writes as JSON: layouts with their predictions, what a step is made of, the time to an
// accuracy, and a machine's fit to measured rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/planning/machine_fit.h"
#include "app/planning/predict.h"
#include "app/planning/terms.h"
#include "app/planning/training_time.h"

namespace convoy {

/// A layout as it is reported.
struct PlannedLayout {
  Prediction prediction;
  bool own = false;  ///< the config's, not one of the search
  std::vector<StepPart> parts;
  std::optional<TrainingTime> time;
};

[[nodiscard]] std::string layout_head(bool with_time);
[[nodiscard]] std::string layout_row(const std::string& label, const PlannedLayout& planned);
/// "            step: compute 61.2 ms, launch 2.1 ms, ..."; parts of less than a thousandth of the step are left out.
[[nodiscard]] std::string parts_row(const PlannedLayout& planned);
[[nodiscard]] nlohmann::ordered_json layout_json(const PlannedLayout& planned);

/// Tables of rows and of parameters.
[[nodiscard]] std::string fit_report(const MachineFit& fit);
[[nodiscard]] nlohmann::ordered_json fit_json(const MachineFit& fit);

/// The simulated step, one row for each stage. Throws an Error naming the file when it cannot be written.
void write_timeline(const std::string& path, const Prediction& prediction);

}  // namespace convoy
