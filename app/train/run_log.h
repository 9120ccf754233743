// SPDX-License-Identifier: Apache-2.0
//
// log.txt of the run's folder: what a person was told, and some more, each line with its time (local, with the offset
// from UTC). A resumed run appends. Relies on spdlog. Invariant: a line is in the file when the call returns.
#pragma once

#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace convoy {

class RunLog {
 public:
  /// Throws a usage Error when the file cannot be written.
  explicit RunLog(const std::string& path);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void info(const std::string& text);
  void warn(const std::string& text);

 private:
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace convoy
