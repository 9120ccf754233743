// SPDX-License-Identifier: Apache-2.0
//
// What is decided about a convolution's plans without a GPU: which convolutions share a plan, what cuDNN's notes may
// say of an engine that is used, how long plans are tried, and which of the timed ones is kept. conv_plans.cpp does
// the rest. Private to layers/backend/cuda.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "layers/backend/cuda/conv/weight_layout.h"
#include "layers/backend/cuda/fusion_rules.h"
#include "layers/backend/operation.h"
#include "layers/base/error.h"
#include "layers/base/shape.h"

namespace convoy {

enum class ConvDirection : std::uint8_t { kForward, kBackwardInput, kBackwardWeight };

/// What a plan computes besides the convolution; see FusionRules.
struct ConvFusion {
  bool prologue = false;    ///< the input is max(0, scale * x + shift)
  bool statistics = false;  ///< sums of y - pivot and of its squares
  bool residual = false;    ///< added to the input gradient
  bool reductions = false;  ///< sums of the input gradient, masked, and of its products with the normalised input
  ReluMask mask = ReluMask::kNone;

  auto operator<=>(const ConvFusion&) const = default;
  [[nodiscard]] std::string str() const {
    std::string text;
    if (prologue) text += " of a normalised input";
    if (residual) text += " with a residual";
    if (statistics) text += " with statistics";
    if (reductions) text += " with reductions";
    if (mask == ReluMask::kOutput) text += " with the mask of an output";
    if (mask == ReluMask::kRecomputed) text += " with the mask recomputed";
    return text;
  }
};

/// One convolution as cuDNN sees it: x [batch, in_channels, height, width]. With one group in_channels is padded.
struct ConvPlanKey {
  ConvDirection direction = ConvDirection::kForward;
  std::int64_t batch = 0, in_channels = 0, height = 0, width = 0;
  std::int64_t out_channels = 0, groups = 1;
  Window2d window;
  DType type = DType::kF32;  ///< of what is read and of what is written
  ConvFusion fusion{};

  auto operator<=>(const ConvPlanKey&) const = default;
  [[nodiscard]] std::int64_t out_height() const { return window.output_height(height); }
  [[nodiscard]] std::int64_t out_width() const { return window.output_width(width); }

  /// "weight gradient of a 3x3 convolution, stride 2, padding 1, of [8, 64, 56, 56] to 128 channels in bfloat16"
  [[nodiscard]] std::string str() const {
    const char* of = direction == ConvDirection::kForward         ? "output"
                     : direction == ConvDirection::kBackwardInput ? "input gradient"
                                                                  : "weight gradient";
    return fmt::format("{} of a {}x{} convolution, stride {}, padding {}{}, of {} to {} channels in {}{}", of,
                       window.kernel.height, window.kernel.width, window.stride.str(), window.padding.str(),
                       groups == 1 ? "" : fmt::format(", {} groups", groups),
                       Shape{batch, in_channels, height, width}.str(), out_channels, dtype_name(type), fusion.str());
  }
};

/// The plan of a convolution of x [N, C, H, W]; type: of activations.
[[nodiscard]] inline ConvPlanKey conv_plan_key(ConvDirection direction, const Conv2dSpec& s, const Shape& x, DType type,
                                               const ConvFusion& fusion = {}) {
  return {direction, x[0], padded_channels(s, type), x[2], x[3], s.out_channels, s.groups, s, type, fusion};
}

/// What cuDNN may note about an engine, as far as it matters here.
enum class PlanNote : std::uint8_t { kTensorCore, kDownConvertInputs, kReducedPrecisionReduction, kNondeterministic };

/// An engine with one of these notes is not used. Float32 on tensor cores is TF32.
inline std::vector<PlanNote> barred_notes(DType type, bool tf32, bool deterministic) {
  std::vector<PlanNote> notes{PlanNote::kDownConvertInputs, PlanNote::kReducedPrecisionReduction};
  if (type == DType::kF32 && !tf32) notes.push_back(PlanNote::kTensorCore);
  if (deterministic) notes.push_back(PlanNote::kNondeterministic);
  return notes;
}

/// Whether one more plan is built and timed, in the order of cuDNN's heuristics, when `built` are that run. Some
/// engines are compiled when their plan is built, which takes up to seconds. first_only: without timing the first plan
/// that can be built is taken.
inline bool try_another(std::size_t built, double seconds, bool first_only) {
  constexpr std::size_t kMax = 16;  // the first ones are often variants of one engine
  constexpr double kSeconds = 1.0;
  if (built == 0) return true;
  return !first_only && built < kMax && seconds < kSeconds;
}

/// Launches to queue at a time when one takes that many milliseconds: what is short is over before the host and the
/// resolution of events no longer matter.
inline int launches_per_timing(double milliseconds) {
  constexpr int kMax = 16;
  constexpr double kLong = 0.5;
  if (milliseconds * kMax <= kLong) return kMax;
  return std::max(1, static_cast<int>(kLong / milliseconds));
}

constexpr double kNoTime = std::numeric_limits<double>::infinity();  ///< of a plan that failed or that there is not

/// The index of the plan to keep, or times.size() when all failed. One that comes later must be quicker by 2 %, so that
/// noise seldom decides.
inline std::size_t quickest(std::span<const double> times) {
  std::size_t best = times.size();
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] == kNoTime) continue;
    if (best == times.size() || times[i] < 0.98 * times[best]) best = i;
  }
  return best;
}

/// Bytes to take from the pool for a workspace: powers of two, so that the plans of all layers share a few blocks.
inline std::int64_t workspace_block(std::int64_t bytes) {
  constexpr std::uint64_t kMin = std::uint64_t{1} << 20;
  return bytes <= 0 ? 0 : static_cast<std::int64_t>(std::bit_ceil(std::max(static_cast<std::uint64_t>(bytes), kMin)));
}

}  // namespace convoy
