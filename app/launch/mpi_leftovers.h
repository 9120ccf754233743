// SPDX-License-Identifier: Apache-2.0
//
// What an MPI leaves on this machine when its launcher is killed: names in /dev/shm and the launcher's session folder.
// The ranks' environment and memory maps say which they are; a record of them lets the next launch remove what this one
// could not. Relies on /proc and, for Open MPI, on PMIx's variables. Invariant: only files of this user that no process
// maps are removed, and session folders of launchers that have ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>
#include <string>

namespace convoy {

class MpiLeftovers {
 public:
  /// `record`: the file; what it says of an earlier launch is removed. `shared`: where shared memory has its names.
  explicit MpiLeftovers(std::string record, std::string shared = "/dev/shm");

  /// Looks at the descendants of the launcher: at each call until ranks have started, then about once a second.
  void look(pid_t launcher);
  /// Looks at ranks that have lost their launcher and are this process's children now, before they are killed.
  void look_at_orphans();
  /// Removes what was seen and is still there. Call it when all of them have ended.
  void sweep();

 private:
  bool look_at(pid_t rank);
  void expect_sessions(pid_t launcher);
  void find_jobs();
  void read_record();
  void write_record() const;
  void remove_shared() const;
  void remove_sessions() const;

  std::string record_, shared_;
  std::set<std::string> names_;     // of files in shared_
  std::set<std::string> jobs_;      // Open MPI 4: "5610001", part of such names
  std::set<std::string> sessions_;  // folders
  std::set<pid_t> ranks_;           // whose environment was read
  pid_t launcher_ = 0;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace convoy
