// SPDX-License-Identifier: Apache-2.0
//
// What launch says: each event as one line on stderr and, for the leader, with the time in DIR/launch.log. Invariant: a
// log that cannot be written never stops a run.
#pragma once

#include <string>

namespace convoy {

class Journal {
 public:
  /// An empty path: stderr only.
  explicit Journal(std::string path) : path_(std::move(path)) {}
  void write(const std::string& line) const;
  /// As an error of the program: "convoy: error: LINE" on stderr.
  void error(const std::string& line) const;

 private:
  void log(const std::string& line) const;

  std::string path_;
};

}  // namespace convoy
