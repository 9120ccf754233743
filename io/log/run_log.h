// SPDX-License-Identifier: Apache-2.0
//
// log.txt of the run folder: all messages to the user and further details. Each line has the local time, with the
// offset from UTC, and a level. A resumed run appends.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace convoy {

/// Thread-safe. A line is in the file when the call returns.
class RunLog {
 public:
  /// Opens the file for appending and creates it if it is missing. Throws a usage Error if it cannot be written.
  explicit RunLog(const std::string& path);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void info(std::string_view text) { write("info", text); }
  void warn(std::string_view text) { write("warning", text); }
  void error(std::string_view text) { write("error", text); }

 private:
  void write(std::string_view level, std::string_view text);

  std::mutex mutex_;
  int descriptor_;
};

}  // namespace convoy
