// SPDX-License-Identifier: Apache-2.0
#include "layers/base/clock.h"

#include <array>
#include <ctime>

namespace convoy {

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &parts);
  std::string time = text.data();
  return time.insert(time.size() - 2, ":");  // ISO 8601 separates the hours and minutes of the offset
}

}  // namespace convoy
