// SPDX-License-Identifier: Apache-2.0
//
// The verdict of convoy bench --calibrate-cpu on made-up times, and the table that it is about.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/bench/calibrate_cpu.h"

using namespace convoy;

namespace {

Calibration calibration(const char* rule, bool chosen, double with, double without) {
  const auto found =
      std::find_if(kCpuRules.begin(), kCpuRules.end(), [&](const CpuRule& each) { return each.name == rule; });
  REQUIRE(found != kCpuRules.end());
  ConvolutionCall call;
  call.spec = Conv2dSpec{64, 128, 3, 2, 1};
  call.input = {16, 64, 32, 32};
  return {found, chosen, {{call, with, without}, {call, with, without}}};
}

}  // namespace

TEST_CASE("a choice loses where it is more than 5 % slower than its other side") {
  CHECK(calibration("winograd", true, 0.003, 0.002).ratio() == 1.5);
  CHECK(calibration("winograd", true, 0.003, 0.002).loses());
  CHECK_FALSE(calibration("winograd", false, 0.003, 0.002).loses());
  CHECK(calibration("winograd", false, 0.002, 0.003).loses());
  CHECK_FALSE(calibration("winograd", true, 0.00202, 0.002).loses());  // about as fast
}

TEST_CASE("the report names calls, times and the choices that lose") {
  const std::vector<Calibration> good{calibration("winograd", true, 0.002, 0.004)};
  const std::string report = calibration_report(good);
  CHECK(report.find(std::string(this_cpu().name)) == 0);
  CHECK(report.find("fp32 3x3 by Winograd (chosen)") != std::string::npos);
  CHECK(report.find("forward 3x3 64 -> 128 /2, [16, 64, 32, 32]") != std::string::npos);
  CHECK(report.find("no choice is more than") != std::string::npos);

  const std::vector<Calibration> both{calibration("winograd", true, 0.004, 0.003),
                                      calibration("im2col", false, 0.001, 0.002)};
  const std::string bad = calibration_report(both);
  CHECK(bad.find("winograd: chosen, but without it these layers take 25 % less time here") != std::string::npos);
  CHECK(bad.find("im2col: not chosen, but with it these layers take 50 % less time here") != std::string::npos);
  CHECK(bad.find("no choice is more than") == std::string::npos);

  const auto json = calibration_json(both);
  CHECK(json["choices"][0]["name"] == "winograd");
  CHECK(json["choices"][1]["loses"] == true);
  CHECK(json["choices"][1]["calls"][0]["with_s"] == 0.001);
}

TEST_CASE("each choice of algorithms has a name of its own") {
  for (std::size_t i = 0; i < kCpuRules.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(kCpuRules[i].name != kCpuRules[j].name);
      CHECK(kCpuRules[i].choice != kCpuRules[j].choice);
    }
  }
  const CpuRules direct = direct_rules();
  for (const CpuRule& rule : kCpuRules) {
    CAPTURE(std::string(rule.name));
    CHECK((rule.choice == &CpuRules::bf16_products || !(direct.*rule.choice)));
  }
}
