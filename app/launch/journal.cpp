// SPDX-License-Identifier: Apache-2.0
#include "app/launch/journal.h"

#include <fstream>
#include <iostream>

#include "app/base/error_report.h"
#include "layers/base/clock.h"
#include "layers/base/message_text.h"

namespace convoy {

void Journal::write(const std::string& line) const {
  std::cerr << "convoy launch: " + message_text(line) + "\n" << std::flush;
  log(line);
}

void Journal::error(const std::string& line) const {
  report_error(line);
  log(line);
}

void Journal::log(const std::string& line) const {
  std::ofstream file(path_, std::ios::app);
  file << utc_time() + " " + message_text(line) + "\n" << std::flush;
}

}  // namespace convoy
