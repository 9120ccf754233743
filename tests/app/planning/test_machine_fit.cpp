// SPDX-License-Identifier: Apache-2.0
//
// Fits of machines to measured and to made-up ladders of ranks, and what is no ladder.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/build/build_data.h"
#include "app/planning/count_work.h"
#include "app/planning/least_squares.h"
#include "app/planning/machine_fit.h"
#include "layers/base/error.h"
#include "layers/base/random.h"
#include "tests/app/planning/gpu_configs.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;

namespace {

const RowPredictor& predictor() {
  static const Config config = test::resnet50_on_gpus();
  static const auto work =
      std::make_shared<const ModelWork>(count_work(config, *build_dataset(config, "", "data.train")));
  static const RowPredictor instance = layout_predictor(config, work, {}, "rows.csv");
  return instance;
}

MachineFigures example(const std::string& name) {
  return read_figures(fmt::format("{}/machines/{}.toml", CONVOY_CONFIGS, name));
}

// Speeds of a machine that is known, with errors of up to 3 %.
std::vector<MeasuredRow> ladder(const MachineFigures& expected, std::vector<MeasuredRow> rows, std::uint64_t key) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].images_per_second = predictor()(expected, rows[i]) * (1 + 0.06 * (random_uniform(key, i) - 0.5));
  }
  return rows;
}

void check_errors(const MachineFit& fit, double largest, double largest_left_out) {
  for (const FittedRow& row : fit.rows) {
    CAPTURE(row.row.ranks);
    CAPTURE(row.row.samples_per_rank);
    CHECK(std::abs(row.fitted / row.row.images_per_second - 1) < largest);
    REQUIRE(row.left_out.has_value());
    CHECK(std::abs(*row.left_out / row.row.images_per_second - 1) < largest_left_out);
  }
}

std::string complaint(const std::string& text) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "rows.csv") << text;
  try {
    static_cast<void>(read_measured_rows(folder / "rows.csv"));
  } catch (const Error& error) {
    const std::string what = error.what();
    return error.code() == ExitCode::kUsage ? what.substr(what.find("rows.csv")) : "not a usage error";
  }
  return "";
}

}  // namespace

TEST_CASE("least squares: a line, and a curve with a valley (Rosenbrock 1960)") {
  const auto line = [](std::span<const double> p) {
    return std::vector<double>{p[0] - 1, p[0] + p[1] - 3, p[0] + 2 * p[1] - 5};
  };
  const LeastSquares fit = least_squares(line, {0, 0});
  CHECK(fit.parameters[0] == doctest::Approx(1));
  CHECK(fit.parameters[1] == doctest::Approx(2));
  // (J^T J)^-1 with J^T J = [[3, 3], [3, 5]].
  CHECK(fit.variances[0] == doctest::Approx(5.0 / 6));
  CHECK(fit.variances[1] == doctest::Approx(3.0 / 6));
  const auto valley = [](std::span<const double> p) {
    return std::vector<double>{10 * (p[1] - p[0] * p[0]), 1 - p[0]};
  };
  CHECK(least_squares(valley, {-1.2, 1}).parameters[0] == doctest::Approx(1).epsilon(1e-4));
  CHECK(huber(-1, 2) == -1);
  CHECK(huber(-4, 2) == doctest::Approx(-std::sqrt(2 * (8.0 - 2))));
}

TEST_CASE("a published ladder of ResNet-50 (MLPerf Training 2.1, four A100 40 GB a node)") {
  const std::vector<MeasuredRow> rows{{4, 204, 12100, 2},  {8, 204, 22600, 3},   {16, 204, 45000, 4},
                                      {32, 102, 77800, 5}, {64, 204, 175000, 6}, {128, 128, 310500, 7}};
  const MachineFit fit = fit_machine(example("a100_40gb_4x"), rows, predictor());
  check_errors(fit, 0.1, 0.15);
  for (const FittedFigure& parameter : fit.parameters) {
    CAPTURE(parameter.figure->key);
    CHECK(parameter.least <= parameter.fitted);
    CHECK(parameter.fitted <= parameter.most);
    CHECK(parameter.determined >= 0);
  }
}

TEST_CASE("nodes whose GPUs talk over PCIe and share a network card") {
  MachineFigures stated = example("a100_40gb_4x");
  stated.node_bandwidth = 20e9, stated.node_shared_bandwidth = 60e9;
  stated.network_bandwidth = 12.5e9, stated.network_cards = 1;
  MachineFigures expected = stated;
  expected.network_bandwidth = 8e9, expected.node_shared_bandwidth = 45e9, expected.memory_efficiency = 0.7;
  expected.step_seconds = 6e-3, expected.contention = 0.2;
  const std::vector<MeasuredRow> rows{{1, 128}, {4, 128}, {8, 128}, {32, 64}, {64, 128}, {64, 32}, {128, 64}};
  check_errors(fit_machine(stated, ladder(expected, rows, 1), predictor()), 0.1, 0.15);
}

TEST_CASE("thousands of ranks with 16 images each") {
  const MachineFigures stated = example("h200_dgx");
  MachineFigures expected = stated;
  expected.memory_bytes_per_second = 3.35e12;  // an H100, from figures of another GPU
  expected.kernel_seconds = 6e-6, expected.step_seconds = 2e-3, expected.jitter = 0.04,
  expected.network_latency = 30e-6;
  const std::vector<MeasuredRow> rows{{8, 400}, {64, 200}, {256, 100}, {1024, 48}, {2048, 24}, {3456, 16}};
  const std::vector<MeasuredRow> measured = ladder(expected, rows, 2);
  const auto per_rank = [](const MeasuredRow& row) { return row.images_per_second / row.ranks; };
  CHECK(per_rank(measured.back()) < 0.5 * per_rank(measured.front()));
  check_errors(fit_machine(stated, measured, predictor()), 0.1, 0.15);
}

TEST_CASE("a fit finds what the rows say, and leaves the rest as it is stated") {
  const MachineFigures stated = example("h200_dgx");
  MachineFigures expected = stated;
  expected.memory_efficiency *= 0.85;
  expected.step_seconds *= 3;
  // On one rank: nothing is sent, and none is the slowest.
  std::vector<MeasuredRow> rows{{1, 16}, {1, 64}, {1, 256}, {1, 512}, {1, 1024}};
  for (MeasuredRow& row : rows) row.images_per_second = predictor()(expected, row);
  const MachineFit fit = fit_machine(stated, rows, predictor());
  // Errors of 3 % are expected of each row, and the priors share out what rows of one rank cannot tell apart.
  check_errors(fit, 0.03, 0.05);
  for (const FittedFigure& parameter : fit.parameters) {
    CAPTURE(parameter.figure->key);
    const double MachineFigures::*value = parameter.figure->value;
    if (value == &MachineFigures::memory_efficiency) {
      CHECK(parameter.fitted == doctest::Approx(expected.memory_efficiency).epsilon(0.05));
      CHECK(parameter.determined > 0.5);
    } else if (value == &MachineFigures::step_seconds) {
      CHECK(parameter.fitted > 1.5 * stated.step_seconds);
    } else if (value == &MachineFigures::jitter || value == &MachineFigures::network_bandwidth) {
      CHECK(parameter.fitted == doctest::Approx(parameter.stated).epsilon(1e-6));
      CHECK(parameter.determined < 1e-6);
    }
  }
}

TEST_CASE("one row that is wrong moves the others little") {
  const MachineFigures stated = example("a100_40gb_4x");
  std::vector<MeasuredRow> rows{{4, 204}, {8, 204}, {16, 204}, {32, 204}, {64, 204}, {128, 204}};
  for (MeasuredRow& row : rows) row.images_per_second = predictor()(stated, row);
  rows[2].images_per_second /= 2;
  const MachineFit fit = fit_machine(stated, rows, predictor());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i != 2) CHECK(std::abs(fit.rows[i].fitted / rows[i].images_per_second - 1) < 0.1);
  }
}

TEST_CASE("measured rows that are none") {
  const std::string head = "ranks,samples_per_rank,images_per_second\n";
  CHECK(complaint(head + "1,2,3\n2,2,5\n").empty());
  CHECK(complaint(
            "\xEF\xBB\xBFimages_per_second, note, ranks ,samples_per_rank\r\n# a comment\r\n\r\n3,a,1,2\r\n5,b,2,2\r\n")
            .empty());
  CHECK(complaint("").starts_with("rows.csv is empty"));
  CHECK(complaint(head).find("rows.csv has no row") == 0);
  CHECK(complaint(head + "1,2,3\n").find("rows.csv has one row") == 0);
  CHECK(complaint("ranks,images_per_second\n1,2\n").starts_with("rows.csv:1: no column samples_per_rank"));
  CHECK(complaint(head + "1,2\n").starts_with("rows.csv:2: 2 columns, the header has 3"));
  CHECK(complaint(head + "1,2,3\n0,2,3\n").starts_with("rows.csv:3: ranks: \"0\" is not a whole number above 0"));
  for (const char* bad : {"-3", "0", "nan", "inf", "3x", "", "1e300"}) {
    CHECK(complaint(head + "1,2," + bad + "\n").starts_with("rows.csv:2: images_per_second: "));
  }
  CHECK(complaint(head + "1.5,2,3\n").starts_with("rows.csv:2: ranks: \"1.5\" is not a whole number"));
  CHECK(complaint(head + "1,99999999999,3\n").starts_with("rows.csv:2: samples_per_rank: "));
}
