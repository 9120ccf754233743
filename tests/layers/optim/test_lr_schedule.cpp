// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "layers/optim/lr_schedule.h"

using convoy::LrSchedule;

namespace {

LrSchedule schedule(LrSchedule::Kind kind) {
  LrSchedule s;
  s.kind = kind;
  s.lr = 0.4;
  s.final_lr = 0.02;
  s.total_steps = 110;
  s.warmup_steps = 10;
  return s;
}

}  // namespace

TEST_CASE("warm-up rises linearly to the full rate in every schedule") {
  for (const auto kind : {LrSchedule::Kind::kConstant, LrSchedule::Kind::kStep, LrSchedule::Kind::kCosine,
                          LrSchedule::Kind::kPolynomial}) {
    const LrSchedule s = schedule(kind);
    for (int step = 0; step < 10; ++step) CHECK(s.at(step) == doctest::Approx(0.4 * (step + 1) / 10));
    CHECK(s.at(10) == doctest::Approx(0.4));
  }
}

TEST_CASE("constant stays") {
  const LrSchedule s = schedule(LrSchedule::Kind::kConstant);
  CHECK(s.at(50) == 0.4);
  CHECK(s.at(1000) == 0.4);
}

TEST_CASE("step multiplies by gamma at each milestone") {
  LrSchedule s = schedule(LrSchedule::Kind::kStep);
  s.milestones = {30, 60};
  s.gamma = 0.5;
  CHECK(s.at(29) == doctest::Approx(0.4));
  CHECK(s.at(30) == doctest::Approx(0.2));
  CHECK(s.at(59) == doctest::Approx(0.2));
  CHECK(s.at(60) == doctest::Approx(0.1));
}

TEST_CASE("cosine passes its closed-form points and ends at final_lr") {
  const LrSchedule s = schedule(LrSchedule::Kind::kCosine);
  CHECK(s.at(60) == doctest::Approx((0.4 + 0.02) / 2));                         // half way: cos(pi/2) = 0
  CHECK(s.at(35) == doctest::Approx(0.02 + 0.38 * 0.5 * (1 + 0.70710678118)));  // a quarter: cos(pi/4)
  CHECK(s.at(110) == doctest::Approx(0.02));
  CHECK(s.at(500) == doctest::Approx(0.02));
}

TEST_CASE("polynomial is (1 - t)^power above final_lr") {
  LrSchedule s = schedule(LrSchedule::Kind::kPolynomial);
  s.power = 2;
  CHECK(s.at(60) == doctest::Approx(0.02 + 0.38 * 0.25));
  CHECK(s.at(110) == doctest::Approx(0.02));
}

TEST_CASE("without warm-up the first step has the full rate") {
  LrSchedule s = schedule(LrSchedule::Kind::kCosine);
  s.warmup_steps = 0;
  CHECK(s.at(0) == doctest::Approx(0.4));
}
