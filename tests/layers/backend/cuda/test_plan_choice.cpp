// SPDX-License-Identifier: Apache-2.0
//
// Which convolution plan the CUDA backend keeps: the part that needs no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "layers/backend/cuda/conv/plan_choice.h"

using namespace convoy;

namespace {

ConvPlanKey example() { return {ConvDirection::kBackwardWeight, 8, 64, 56, 57, 128, 1, {3, 2, 1}, DType::kBF16}; }

bool barred(PlanNote note, DType type, bool tf32, bool deterministic) {
  const auto notes = barred_notes(type, tf32, deterministic);
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

}  // namespace

TEST_CASE("convolutions that differ anywhere have plans of their own") {
  std::set<ConvPlanKey> keys{example()};
  CHECK_FALSE(keys.insert(example()).second);
  for (auto field : {&ConvPlanKey::batch, &ConvPlanKey::in_channels, &ConvPlanKey::height, &ConvPlanKey::width,
                     &ConvPlanKey::out_channels, &ConvPlanKey::groups}) {
    ConvPlanKey other = example();
    other.*field += 10;
    CHECK(keys.insert(other).second);
  }
  for (auto size : {&Window2d::kernel, &Window2d::stride, &Window2d::padding}) {
    for (auto axis : {&Size2d::height, &Size2d::width}) {
      ConvPlanKey other = example();
      other.window.*size.*axis += 10;
      CHECK(keys.insert(other).second);
    }
  }
  ConvPlanKey other = example();
  other.direction = ConvDirection::kForward;
  CHECK(keys.insert(other).second);
  other = example();
  other.type = DType::kF16;
  CHECK(keys.insert(other).second);
}

TEST_CASE("a convolution knows its output's size and its name") {
  CHECK(example().out_height() == 28);
  CHECK(example().out_width() == 29);
  CHECK(example().str() ==
        "weight gradient of a 3x3 convolution, stride 2, padding 1, of [8, 64, 56, 57] to 128 channels in bfloat16");
}

TEST_CASE("engines that round more than was asked for are barred") {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool tf32 : {false, true}) {
      for (const bool deterministic : {false, true}) {
        CHECK(barred(PlanNote::kDownConvertInputs, type, tf32, deterministic));
        CHECK(barred(PlanNote::kReducedPrecisionReduction, type, tf32, deterministic));
        CHECK(barred(PlanNote::kTensorCore, type, tf32, deterministic) == (type == DType::kF32 && !tf32));
        CHECK(barred(PlanNote::kNondeterministic, type, tf32, deterministic) == deterministic);
      }
    }
  }
}

TEST_CASE("plans are tried until one is built, then a few more") {
  CHECK(try_another(0, 100.0, false));
  CHECK(try_another(0, 100.0, true));
  CHECK_FALSE(try_another(1, 0.0, true));
  CHECK(try_another(15, 0.5, false));
  CHECK_FALSE(try_another(16, 0.5, false));
  CHECK_FALSE(try_another(1, 1.5, false));
}

TEST_CASE("the quickest plan is kept, the earlier one when they are alike") {
  using Times = std::vector<double>;
  CHECK(quickest(Times{}) == 0);
  CHECK(quickest(Times{kNoTime, kNoTime}) == 2);
  CHECK(quickest(Times{3.0}) == 0);
  CHECK(quickest(Times{kNoTime, 3.0, 2.0, 2.5}) == 2);
  CHECK(quickest(Times{1.00, 0.99}) == 0);
  CHECK(quickest(Times{1.00, 0.97}) == 1);
}

TEST_CASE("short launches are timed several at a time") {
  CHECK(launches_per_timing(0.0) == 16);
  CHECK(launches_per_timing(0.01) == 16);
  CHECK(launches_per_timing(0.1) == 5);
  CHECK(launches_per_timing(0.4) == 1);
  CHECK(launches_per_timing(20.0) == 1);
}

TEST_CASE("workspaces are powers of two of at least a MiB") {
  CHECK(workspace_block(0) == 0);
  CHECK(workspace_block(1) == 1 << 20);
  CHECK(workspace_block(1 << 20) == 1 << 20);
  CHECK(workspace_block((1 << 20) + 1) == 2 << 20);
  CHECK(workspace_block(std::int64_t{3} << 30) == std::int64_t{4} << 30);
}
