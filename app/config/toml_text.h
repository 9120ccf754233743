// SPDX-License-Identifier: Apache-2.0
//
// Values of a Config as TOML text that reads back to the same value.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/base/options.h"
#include "layers/base/size2d.h"
#include "layers/models/recompute.h"
#include "parallel/schedule/parallel_options.h"

namespace convoy {

[[nodiscard]] std::string toml_text(bool value);
[[nodiscard]] std::string toml_text(std::int64_t value);
[[nodiscard]] std::string toml_text(std::uint64_t value);
/// The shortest decimal form of this very number, with a point or an exponent.
[[nodiscard]] std::string toml_text(double value);
[[nodiscard]] std::string toml_text(const std::string& value);
[[nodiscard]] std::string toml_text(const std::array<double, 2>& value);
[[nodiscard]] std::string toml_text(const Size2d& value);
[[nodiscard]] std::string toml_text(const PartitionOptions& value);
[[nodiscard]] std::string toml_text(const RecomputeOptions& value);
/// "" for no time.
[[nodiscard]] std::string toml_text(const std::optional<std::chrono::seconds>& value);
/// Empty text, which is no TOML, for no number.
[[nodiscard]] std::string toml_text(const std::optional<std::int64_t>& value);

template <OptionEnum E>
[[nodiscard]] std::string toml_text(E value) {
  return toml_text(std::string(to_string(value)));
}

template <class T>
[[nodiscard]] std::string toml_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + toml_text(value);
  return "[" + text + "]";
}

}  // namespace convoy
