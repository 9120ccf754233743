// SPDX-License-Identifier: Apache-2.0
//
// What convoy plan prints and writes as JSON: layouts with their predictions, what a step is made of, the time to an
// accuracy, and a machine's fit to measured rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
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
  /// Of a fitted machine: the lowest and highest samples per second by the fits that leave out a row.
  std::optional<std::pair<double, double>> range;
};

/// gpus: the ranks are GPUs.
[[nodiscard]] std::string layout_head(bool with_time, bool gpus);
[[nodiscard]] std::string layout_row(const std::string& label, const PlannedLayout& planned);
/// "            step ms: compute 61.22, launch 2.10, ...", without parts of less than a thousandth of the step, and the
/// range.
[[nodiscard]] std::string parts_row(const PlannedLayout& planned);
[[nodiscard]] nlohmann::ordered_json layout_json(const PlannedLayout& planned);

/// Tables of rows and of parameters.
[[nodiscard]] std::string fit_report(const MachineFit& fit);
[[nodiscard]] nlohmann::ordered_json fit_json(const MachineFit& fit);

/// The simulated steps, a process for each stage of each layout. Throws an Error that begins with the option and names
/// the file when it cannot be written.
void write_timelines(const char* option, const std::string& path, const std::vector<Prediction>& predictions);

}  // namespace convoy
