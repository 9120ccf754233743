// SPDX-License-Identifier: Apache-2.0
//
// Fits the figures of a machine that no data sheet says exactly to measured speeds: robust least squares of the
// logarithms, with a prior that pulls each figure to what is stated. So a figure that the rows say nothing of stays.
// Pure functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/config/config.h"
#include "app/planning/gpu_costs.h"
#include "app/planning/machine_figures.h"
#include "app/planning/measured_rows.h"
#include "app/planning/terms.h"

namespace convoy {

/// Samples per second that a machine of these figures is predicted to reach.
using RowPredictor = std::function<double(const MachineFigures& figures, const MeasuredRow& row)>;

/// Of the config's own layout, without these terms. Throws a usage Error naming file and line of a row that the layout
/// does not suit.
[[nodiscard]] RowPredictor layout_predictor(const Config& config, std::shared_ptr<const ModelWork> work,
                                            std::vector<Term> without_terms, std::string path);

struct FittedFigure {
  const Figure* figure = nullptr;
  double stated = 0, fitted = 0;
  /// How much less uncertain the rows make it: 1 less the ratio of its variances with and without them, 0 to 1.
  double determined = 0;
  /// The smallest and largest value of the fits that leave out a row; equal to `fitted` where there are none.
  double least = 0, most = 0;
};

struct FittedRow {
  MeasuredRow row;
  double stated = 0, fitted = 0;   ///< predicted samples per second
  std::optional<double> left_out;  ///< by a fit to the other rows; none with fewer than three rows
};

struct MachineFit {
  MachineFigures figures;
  std::vector<FittedFigure> parameters;
  std::vector<FittedRow> rows;
  std::vector<MachineFigures> left_out;  ///< fitted to all rows but one, by row; empty with fewer than three rows
};

/// `stated` with the figures that have a spread (machine_figures()) and are not 0 fitted to the rows.
[[nodiscard]] MachineFit fit_machine(const MachineFigures& stated, const std::vector<MeasuredRow>& rows,
                                     const RowPredictor& predictor);

}  // namespace convoy
