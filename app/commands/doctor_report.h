// SPDX-License-Identifier: Apache-2.0
//
// The report that convoy doctor prints: one line for each thing, `ok`, `warn` or `fail`, the last two with what to do.
#pragma once

#include <fmt/format.h>

#include <iostream>
#include <string>

#include "layers/base/message_text.h"

namespace convoy {

/// The lines of the report, and whether one is a failure.
class Report {
 public:
  void ok(const char* subject, const std::string& text) { line("ok", subject, text); }
  void warn(const char* subject, const std::string& text) { line("warn", subject, text); }
  void fail(const char* subject, const std::string& text) {
    line("fail", subject, text);
    failed_ = true;
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  static void line(const char* verdict, const char* subject, const std::string& text) {
    std::cout << fmt::format("{:<4}  {:<10}  {}\n", verdict, subject, without_controls(text));
  }
  bool failed_ = false;
};

/// GPUs, their driver and libraries.
void check_gpus(Report& report);

}  // namespace convoy
