// SPDX-License-Identifier: Apache-2.0
//
// The log of a launch: each event is a line on stderr and, with a time stamp, in `launch/launch.log` of the run folder.
// Invariant: if the log cannot be written, the run continues.
#pragma once

#include <string>
#include <utility>

namespace convoy {

class Journal {
 public:
  explicit Journal(std::string path) : path_(std::move(path)) {}
  void write(const std::string& line) const;
  /// As an error of the program: "convoy: error: LINE" on stderr.
  void error(const std::string& line) const;

 private:
  void log(const std::string& line) const;

  std::string path_;
};

}  // namespace convoy
