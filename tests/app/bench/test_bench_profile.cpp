// SPDX-License-Identifier: Apache-2.0
//
// The tables of bench --profile: sums, shares, bounds and order, from entries made by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "app/bench/bench_profile.h"

using namespace convoy;

namespace {

// Two steps of 10 ms: a convolution with its backward, batch norm, an update.
StepProfile sample() {
  StepProfile profile;
  profile.steps = 2;
  profile.step_seconds = 0.010;
  profile.bounds = {1e9, 1e8};
  profile.convolution_bound = 0.006;
  profile.direct_convolution_bound = 0.012;
  const std::string conv = "3x3 4 -> 4, [1, 4, 8, 8]", norm = "[1, 4, 8, 8]";
  profile.entries[{"conv2d_forward", "layer1.0", conv}] = {2, 0.004, {2e6, 1e3}};
  profile.entries[{"conv2d_backward_input", "layer1.0", conv}] = {2, 0.006, {2e6, 1e3}};
  profile.entries[{"conv2d_backward_weight", "layer1.0", conv}] = {2, 0.002, {2e6, 1e3}};
  profile.entries[{"conv2d_forward", "layer1.1", conv}] = {2, 0.002, {2e6, 1e3}};
  profile.entries[{"batch_norm_statistics", "layer1.0", norm}] = {2, 0.001, {0, 2e4}};
  profile.entries[{"batch_norm_backward_reduce", "layer1.0", norm}] = {2, 0.001, {0, 4e4}};
  profile.entries[{"sgd_update", "optimizer_step", "[100]"}] = {2, 0.002, {0, 1e5}};
  return profile;
}

}  // namespace

TEST_CASE("lines by operation: longest first, what is between them last") {
  const auto lines = lines_by_operation(sample());
  REQUIRE(lines.size() == 7);
  // Both take 3 ms a step.
  CHECK(lines[0].seconds == doctest::Approx(0.003));
  CHECK(lines[1].seconds == doctest::Approx(0.003));
  const ProfileLine& forward = lines[0].name == "conv2d_forward" ? lines[0] : lines[1];
  CHECK(forward.name == "conv2d_forward");
  CHECK(forward.calls == 2);  // of two units, once a step each
  CHECK(forward.share == doctest::Approx(0.3));
  CHECK(forward.flops_per_second == doctest::Approx(4e6 / 0.006));
  CHECK(forward.of_bound == doctest::Approx(0.004 / 0.006));  // 4 Mflop at 1 Gflop/s
  CHECK(lines.back().name == "between operations");
  CHECK(lines.back().seconds == doctest::Approx(0.010 - 0.009));
  double shares = 0;
  for (const ProfileLine& line : lines) shares += line.share;
  CHECK(shares == doctest::Approx(1));
}

TEST_CASE("lines by layer: both halves of backward beside forward") {
  const auto lines = lines_by_layer(sample());
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].unit == "layer1.0");
  CHECK(lines[0].layer == "conv2d 3x3 4 -> 4, [1, 4, 8, 8]");
  CHECK(lines[0].forward == doctest::Approx(0.002));
  CHECK(lines[0].backward_input == doctest::Approx(0.003));
  CHECK(lines[0].backward_weight == doctest::Approx(0.001));
  CHECK(lines[0].share == doctest::Approx(0.6));
  CHECK(lines[0].flops_per_second == doctest::Approx(6e6 / 0.012));
  const auto norm =
      std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.layer.starts_with("batch"); });
  REQUIRE(norm != lines.end());
  CHECK(norm->forward == doctest::Approx(0.0005));
  CHECK(norm->of_bound == doctest::Approx(6e4 / 1e8 / 0.002));  // by bytes
}

TEST_CASE("the report says both tables, the bounds and what of the step is convolutions") {
  const std::string text = profile_report(sample());
  for (const char* words :
       {"conv2d_backward_input", "between operations", "layer1.1", "bounds: 1 GFLOP/s", "0.1 GB/s",
        "convolution bound: 6.00 ms", "60.0 % of the step", "direct algorithm: 12.00 ms", "120.0 % of the step"}) {
    CHECK_MESSAGE(text.find(words) != std::string::npos, words);
  }
}
