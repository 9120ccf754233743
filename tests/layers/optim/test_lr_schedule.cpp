// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "layers/optim/lr_schedule.h"

using namespace convoy;

namespace {

LrSchedule schedule(const LrCurve& curve) { return {{10, 0, curve}, 0.4, 1, 110}; }

const CosineLr kCosine{0.02};
const PolynomialLr kPolynomial{2, 0.02};

}  // namespace

TEST_CASE("warm-up rises linearly to the full rate in every schedule") {
  for (const LrCurve& curve : {LrCurve(ConstantLr()), LrCurve(StepLr()), LrCurve(kCosine), LrCurve(kPolynomial)}) {
    const LrSchedule s = schedule(curve);
    for (int step = 0; step < 10; ++step) CHECK(s.at(step) == doctest::Approx(0.4 * (step + 1) / 10));
    CHECK(s.at(10) == doctest::Approx(0.4));
  }
}

TEST_CASE("constant stays") {
  const LrSchedule s = schedule(ConstantLr());
  CHECK(s.at(50) == 0.4);
  CHECK(s.at(1000) == 0.4);
}

TEST_CASE("step multiplies by gamma at each milestone") {
  const LrSchedule s = schedule(StepLr{{30, 60}, 0.5});
  CHECK(s.at(29) == doctest::Approx(0.4));
  CHECK(s.at(30) == doctest::Approx(0.2));
  CHECK(s.at(59) == doctest::Approx(0.2));
  CHECK(s.at(60) == doctest::Approx(0.1));
}

TEST_CASE("cosine passes its closed-form points and ends at final_lr") {
  const LrSchedule s = schedule(kCosine);
  CHECK(s.at(60) == doctest::Approx((0.4 + 0.02) / 2));                         // half way: cos(pi/2) = 0
  CHECK(s.at(35) == doctest::Approx(0.02 + 0.38 * 0.5 * (1 + 0.70710678118)));  // a quarter: cos(pi/4)
  CHECK(s.at(110) == doctest::Approx(0.02));
  CHECK(s.at(500) == doctest::Approx(0.02));
}

TEST_CASE("polynomial is (1 - t)^power above final_lr") {
  const LrSchedule s = schedule(kPolynomial);
  CHECK(s.at(60) == doctest::Approx(0.02 + 0.38 * 0.25));
  CHECK(s.at(110) == doctest::Approx(0.02));
}

TEST_CASE("warm-up in steps is that of as many epochs of one step") {
  for (const LrCurve& curve : {LrCurve(ConstantLr()), LrCurve(kCosine), LrCurve(kPolynomial)}) {
    const LrSchedule epochs = schedule(curve);
    LrSchedule steps = epochs;
    steps.options.warmup_epochs = 0;
    steps.options.warmup_steps = 10;
    for (int step = 0; step <= 110; ++step) CHECK(steps.at(step) == epochs.at(step));
    steps.steps_per_epoch = 7;  // which warm-up in steps does not depend on
    CHECK(steps.at(4) == doctest::Approx(0.2));
  }
}

TEST_CASE("without warm-up the first step has the full rate") {
  LrSchedule s = schedule(kCosine);
  s.options.warmup_epochs = 0;
  CHECK(s.at(0) == doctest::Approx(0.4));
}
