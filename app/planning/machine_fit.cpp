// SPDX-License-Identifier: Apache-2.0
#include "app/planning/machine_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "app/planning/least_squares.h"
#include "app/planning/predict.h"
#include "app/planning/stated_machine.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr double kRowDeviation = 0.03;  // of the logarithm of a measured speed: what repeated runs differ by
constexpr double kMaxMove = 10;         // spreads from what is stated
constexpr double kRobust = 2;           // such deviations, beyond which a row counts by its absolute error
constexpr std::size_t kFewRows = 3;     // to leave one out

std::vector<const Figure*> free_figures(const MachineFigures& stated) {
  std::vector<const Figure*> figures;
  for (const Figure& figure : machine_figures()) {
    if (figure.spread > 0 && stated.*figure.value > 0) figures.push_back(&figure);
  }
  return figures;
}

// The parameters are the logarithms of fitted over stated figures, in spreads.
MachineFigures moved(const MachineFigures& stated, const std::vector<const Figure*>& free, std::span<const double> by) {
  MachineFigures figures = stated;
  for (std::size_t i = 0; i < free.size(); ++i) {
    double& value = figures.*free[i]->value;
    value = std::min(free[i]->maximum, value * std::exp(free[i]->spread * std::clamp(by[i], -kMaxMove, kMaxMove)));
  }
  return figures;
}

LeastSquares fit_rows(const MachineFigures& stated, const std::vector<const Figure*>& free,
                      const std::vector<MeasuredRow>& rows, const RowPredictor& predictor, std::vector<double> start) {
  const auto residuals = [&](std::span<const double> parameters) {
    const MachineFigures figures = moved(stated, free, parameters);
    std::vector<double> result;
    for (const MeasuredRow& row : rows) {
      const double error = std::log(predictor(figures, row) / row.images_per_second);
      result.push_back(huber(error / kRowDeviation, kRobust));
    }
    result.insert(result.end(), parameters.begin(), parameters.end());  // the priors, of standard deviation 1
    return result;
  };
  return least_squares(residuals, std::move(start));
}

}  // namespace

RowPredictor layout_predictor(const Config& config, std::shared_ptr<const ModelWork> work,
                              std::vector<Term> without_terms, std::string path) {
  return [planned = config, work = std::move(work), terms = std::move(without_terms), path = std::move(path)](
             const MachineFigures& figures, const MeasuredRow& row) mutable {
    MachineModel machine = stated_machine(figures, work);
    for (const Term term : terms) machine = without(std::move(machine), term);
    planned.train.global_batch_size = row.ranks * row.samples_per_rank;
    double speed = 0;
    try {
      speed = predict(plan_layout(planned, row.ranks), planned, machine, planned.train.global_batch_size)
                  .images_per_second();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      fail_usage("--fit: {}:{}: {}", path, row.line, error.what());
    }
    if (speed > 0 && std::isfinite(speed)) return speed;
    fail_usage("--fit: {}:{}: the machine is predicted to make {} samples per second (check its figures)", path,
               row.line, speed);
  };
}

MachineFit fit_machine(const MachineFigures& stated, const std::vector<MeasuredRow>& rows,
                       const RowPredictor& predictor) {
  const std::vector<const Figure*> free = free_figures(stated);
  const LeastSquares all = fit_rows(stated, free, rows, predictor, std::vector<double>(free.size(), 0));
  MachineFit fit;
  fit.figures = moved(stated, free, all.parameters);
  for (std::size_t i = 0; i < free.size(); ++i) {
    const double value = fit.figures.*free[i]->value;
    fit.parameters.push_back(
        {free[i], stated.*free[i]->value, value, 1 - std::min(1.0, all.variances[i]), value, value});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    FittedRow& row = fit.rows.emplace_back(
        FittedRow{rows[i], predictor(stated, rows[i]), predictor(fit.figures, rows[i]), std::nullopt});
    if (rows.size() < kFewRows) continue;
    std::vector<MeasuredRow> others = rows;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const MachineFigures& without_row = fit.left_out.emplace_back(
        moved(stated, free, fit_rows(stated, free, others, predictor, all.parameters).parameters));
    row.left_out = predictor(without_row, rows[i]);
    for (FittedFigure& parameter : fit.parameters) {
      parameter.least = std::min(parameter.least, without_row.*parameter.figure->value);
      parameter.most = std::max(parameter.most, without_row.*parameter.figure->value);
    }
  }
  return fit;
}

}  // namespace convoy
