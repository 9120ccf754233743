// SPDX-License-Identifier: Apache-2.0
#include "app/bench/calibrate_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "layers/backend/observe/bounds.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/operation.h"

namespace convoy {

namespace {

using enum ConvolutionCall::Direction;
constexpr int kCalibrationRounds = 3;
constexpr double kTolerance = 1.05;

struct TimedLayer {
  ConvolutionCall::Direction direction;
  std::int64_t in, out, kernel, stride, size;  // images of size x size
};

// What a choice is about, of ResNet-50 on 16 images of 128 x 128.
struct Choice {
  bool CpuRules::*rule;
  DType dtype;
  std::vector<TimedLayer> layers;
  bool CpuRules::*before = nullptr;  // a choice that would replace this one; it is timed without
};

std::vector<Choice> timed_choices() {
  const std::vector<TimedLayer> windows{
      {kForward, 64, 64, 3, 1, 32}, {kBackwardInput, 256, 256, 3, 1, 8}, {kBackwardWeight, 128, 128, 3, 1, 16}};
  return {
      {&CpuRules::bf16_products, DType::kBF16, {{kForward, 256, 1024, 1, 1, 8}, {kBackwardWeight, 256, 1024, 1, 1, 8}}},
      {&CpuRules::winograd, DType::kF32, windows},
      {&CpuRules::winograd_bf16, DType::kBF16, windows},
      {&CpuRules::pointwise_gemm,
       DType::kF32,
       {{kForward, 256, 64, 1, 1, 32}, {kBackwardInput, 64, 256, 1, 1, 32}, {kBackwardWeight, 256, 1024, 1, 1, 8}}},
      {&CpuRules::own_rows,
       DType::kF32,
       {{kForward, 256, 64, 1, 1, 32}, {kForward, 512, 2048, 1, 1, 4}, {kBackwardInput, 1024, 256, 1, 1, 8}}},
      {&CpuRules::own_rows_bf16,
       DType::kBF16,
       {{kForward, 256, 64, 1, 1, 32},
        {kForward, 512, 2048, 1, 1, 4},
        {kForward, 256, 512, 1, 2, 32},
        {kBackwardInput, 1024, 256, 1, 1, 8}}},
      {&CpuRules::im2col,
       DType::kF32,
       {{kForward, 512, 512, 3, 2, 8}, {kBackwardInput, 512, 512, 3, 2, 8}, {kBackwardWeight, 512, 512, 3, 2, 8}},
       &CpuRules::pixel_gradient_f32},
      {&CpuRules::im2col_narrow,
       DType::kF32,
       {{kForward, 128, 128, 3, 2, 32}, {kBackwardInput, 256, 256, 3, 2, 16}, {kBackwardWeight, 128, 128, 3, 2, 32}}},
      {&CpuRules::pixel_gradient_f32,
       DType::kF32,
       {{kBackwardWeight, 512, 512, 3, 2, 8}, {kBackwardWeight, 128, 128, 3, 2, 32}, {kForward, 128, 128, 3, 2, 32}}},
      {&CpuRules::row_gradient_f32,
       DType::kF32,
       {{kBackwardWeight, 64, 256, 1, 1, 32}, {kBackwardWeight, 1024, 256, 1, 1, 8}}},
      {&CpuRules::im2col_bf16_weight,
       DType::kBF16,
       {{kBackwardWeight, 512, 512, 3, 2, 8}, {kBackwardWeight, 512, 2048, 1, 1, 4}},
       &CpuRules::pixel_gradient},
      {&CpuRules::pixel_gradient,
       DType::kBF16,
       {{kBackwardWeight, 512, 512, 3, 2, 8},
        {kBackwardWeight, 64, 256, 1, 1, 32},
        {kBackwardWeight, 512, 512, 3, 1, 4}}},
      {&CpuRules::im2col_bf16_input,
       DType::kBF16,
       {{kBackwardInput, 1024, 256, 1, 1, 8}, {kBackwardInput, 512, 512, 3, 2, 8}},
       &CpuRules::own_rows_bf16}};
}

ConvolutionCall call_of(const TimedLayer& layer) {
  constexpr std::int64_t kImages = 16;
  ConvolutionCall call;
  call.direction = layer.direction;
  call.spec = Conv2dSpec{layer.in, layer.out, layer.kernel, layer.stride, layer.kernel / 2};
  call.input = {kImages, layer.in, layer.size, layer.size};
  return call;
}

// Which sides there are: products in bfloat16 need its instructions, and all else in bfloat16 needs such products.
bool applies(const Choice& choice) {
  if (choice.dtype == DType::kF32) return true;
  return choice.rule == &CpuRules::bf16_products ? direct_rules().bf16_products : this_cpu().rules.bf16_products;
}

double seconds_of(const Choice& choice, bool with, const ConvolutionCall& call, int threads) {
  CpuRules rules = this_cpu().rules;
  rules.*choice.rule = with;
  if (choice.before != nullptr) rules.*choice.before = false;
  OnednnBackend backend(threads, choice.dtype, rules);
  return time_alone(backend, {{call, 1}}).at(call);
}

CalibrationCall time_both(const Choice& choice, const ConvolutionCall& call, int threads) {
  CalibrationCall timed{call, std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
  for (int round = 0; round < kCalibrationRounds; ++round) {
    timed.with = std::min(timed.with, seconds_of(choice, true, call, threads));
    timed.without = std::min(timed.without, seconds_of(choice, false, call, threads));
  }
  return timed;
}

std::string words(const ConvolutionCall& call) {
  const char* direction = call.direction == kForward         ? "forward"
                          : call.direction == kBackwardInput ? "d input"
                                                             : "d weight";
  return fmt::format("{} {}", direction, ops::conv2d_detail(call.spec, call.input));
}

}  // namespace

double Calibration::ratio() const {
  double with = 0, without = 0;
  for (const CalibrationCall& call : calls) {
    with += call.with;
    without += call.without;
  }
  return with / without;
}

bool Calibration::loses() const { return chosen ? ratio() > kTolerance : ratio() < 1 / kTolerance; }

std::vector<Calibration> calibrate_cpu(int threads) {
  std::vector<Calibration> calibrations;
  for (const Choice& choice : timed_choices()) {
    if (!applies(choice)) continue;
    const auto* rule = std::find_if(kCpuRules.begin(), kCpuRules.end(),
                                    [&](const CpuRule& each) { return each.choice == choice.rule; });
    Calibration calibration{rule, this_cpu().rules.*choice.rule, {}};
    for (const TimedLayer& layer : choice.layers)
      calibration.calls.push_back(time_both(choice, call_of(layer), threads));
    calibrations.push_back(std::move(calibration));
  }
  return calibrations;
}

std::string calibration_report(const std::vector<Calibration>& calibrations) {
  const CpuKind& cpu = this_cpu();
  std::string text = fmt::format("{}: {}\n{:<66} {:>9} {:>11} {:>6}\n", cpu.name,
                                 cpu.measured.empty() ? "its choices were timed on no such CPU yet"
                                                      : fmt::format("its choices were timed on {}", cpu.measured),
                                 "choice", "with, ms", "without, ms", "ratio");
  for (const Calibration& each : calibrations) {
    text += fmt::format("{:<66} {:>9} {:>11} {:>6.2f}\n",
                        fmt::format("{} ({})", each.rule->what, each.chosen ? "chosen" : "not chosen"), "", "",
                        each.ratio());
    for (const CalibrationCall& call : each.calls) {
      text += fmt::format("  {:<64} {:>9.2f} {:>11.2f} {:>6.2f}\n", words(call.call), 1e3 * call.with,
                          1e3 * call.without, call.with / call.without);
    }
  }
  bool loses = false;
  for (const Calibration& each : calibrations) {
    if (!each.loses()) continue;
    loses = true;
    text += fmt::format("{}: {}, but {} it these layers take {:.0f} % less time here\n", each.rule->name,
                        each.chosen ? "chosen" : "not chosen", each.chosen ? "without" : "with",
                        100 * (1 - (each.chosen ? 1 / each.ratio() : each.ratio())));
  }
  if (!loses) text += "no choice is more than 5 % slower than its other side here\n";
  return text;
}

nlohmann::ordered_json calibration_json(const std::vector<Calibration>& calibrations) {
  nlohmann::ordered_json json{
      {"cpu", this_cpu().name}, {"measured_on", this_cpu().measured}, {"choices", nlohmann::ordered_json::array()}};
  for (const Calibration& each : calibrations) {
    nlohmann::ordered_json choice{{"name", each.rule->name},
                                  {"chosen", each.chosen},
                                  {"ratio", each.ratio()},
                                  {"loses", each.loses()},
                                  {"calls", nlohmann::ordered_json::array()}};
    for (const CalibrationCall& call : each.calls) {
      choice["calls"].push_back({{"call", words(call.call)}, {"with_s", call.with}, {"without_s", call.without}});
    }
    json["choices"].push_back(std::move(choice));
  }
  return json;
}

}  // namespace convoy
