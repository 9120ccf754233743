// SPDX-License-Identifier: Apache-2.0
#include "app/launch/journal.h"

#include <array>
#include <ctime>
#include <fstream>
#include <iostream>

#include "app/error_report.h"

namespace convoy {

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void Journal::write(const std::string& line) const {
  std::cerr << "convoy launch: " + line + "\n" << std::flush;
  log(line);
}

void Journal::error(const std::string& line) const {
  report_error(line);
  log(line);
}

void Journal::log(const std::string& line) const {
  if (path_.empty()) return;
  std::ofstream file(path_, std::ios::app);
  file << utc_time() + " " + line + "\n" << std::flush;
}

}  // namespace convoy
