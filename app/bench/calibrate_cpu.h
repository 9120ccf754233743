// SPDX-License-Identifier: Apache-2.0
//
// convoy bench --calibrate-cpu: times both sides of each choice of algorithms that convolutions make by kind of CPU
// (layers/backend/onednn/cpu_rules.h), on layers of ResNet-50, and says where the table is not the fastest here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "layers/backend/observe/profile_backend.h"
#include "layers/backend/onednn/cpu_rules.h"

namespace convoy {

/// A call whose time depends on a choice, without the copies of its weight that an update makes. Seconds: the least of
/// several rounds, in turn.
struct CalibrationCall {
  ConvolutionCall call;
  double with = 0, without = 0;
};

struct Calibration {
  const CpuRule* rule = nullptr;
  bool chosen = false;  ///< by the table
  std::vector<CalibrationCall> calls;

  /// Time with it over that without, over all calls.
  [[nodiscard]] double ratio() const;
  /// Whether it is more than 5 % slower than the other side.
  [[nodiscard]] bool loses() const;
};

/// Of the choices that this CPU has. threads: of the backends.
[[nodiscard]] std::vector<Calibration> calibrate_cpu(int threads);

/// The table, and a sentence for each choice that loses.
[[nodiscard]] std::string calibration_report(const std::vector<Calibration>& calibrations);

[[nodiscard]] nlohmann::ordered_json calibration_json(const std::vector<Calibration>& calibrations);

}  // namespace convoy
