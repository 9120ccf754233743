// SPDX-License-Identifier: Apache-2.0
//
// Health checks of hosts. A host is probed before it is used and again after every failure, several hosts at a time and
// without blocking. A host that fails is excluded and probed again after 10, 20, 40 ... 600 s, and so is one whose
// system made a generation fail, if there are others. Invariant: this machine is never probed.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "app/launch/child_process.h"
#include "app/launch/host_list.h"
#include "app/launch/journal.h"

namespace convoy {

class HostHealth {
 public:
  /// probe: the command that probes a host. at_once: probes that run at the same time; each is an mpirun, and hundreds
  /// of them would wait for this machine's CPUs.
  HostHealth(std::function<std::vector<std::string>(const std::string& host)> probe, const Journal& journal,
             int at_once = std::clamp(4 * static_cast<int>(std::thread::hardware_concurrency()), 8, 64));
  ~HostHealth();
  HostHealth(const HostHealth&) = delete;
  HostHealth& operator=(const HostHealth&) = delete;

  /// Starts probes that are due, polls running ones, and returns the healthy hosts of `listed`.
  HostList usable(const HostList& listed);
  /// Whether a probe of one of `listed` is pending.
  [[nodiscard]] bool busy(const HostList& listed) const;
  /// Whether one of `listed` has not had its turn to be probed.
  [[nodiscard]] bool queueing(const HostList& listed) const;
  /// Why none of `listed` will ever work: each has failed several times and has never worked. Empty: some may.
  [[nodiscard]] std::string hopeless(const HostList& listed) const;
  /// After a failure: all hosts are probed again before they are used.
  void doubt();
  /// After a failure of this host's system (SystemError::host()): it is left out, for longer each time until a
  /// generation has `trained`. Nothing happens when it is the only one of `listed`, or none of them.
  void blame(const std::string& host, const HostList& listed, bool trained);

 private:
  enum class Verdict { kUnknown, kGood, kBad };
  struct Entry {
    Verdict verdict = Verdict::kUnknown;
    int failures = 0;  // of probes in a row
    int faults = 0;    // of its system, since a generation trained
    bool has_worked = false;
    std::string problem;  // of the last failure
    int errors = -1;      // descriptor of what the probe writes to stderr
    std::unique_ptr<ChildProcess> probe;
    std::chrono::steady_clock::time_point deadline;  // of the probe; when bad: of being left out

    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
  };
  void poll(const std::string& name, Entry& entry);
  [[nodiscard]] int probes() const;
  void tell(const HostList& listed);
  void finish(const std::string& name, Entry& entry, const std::string& problem);
  static int leave_out(Entry& entry, int times);

  std::function<std::vector<std::string>(const std::string& host)> probe_;
  const Journal& journal_;
  const int at_once_;
  int running_ = 0;         // probes
  bool has_queue_ = false;  // of hosts that nothing is known of: those that failed wait for them
  int silence_;             // a descriptor of /dev/null, for stdout
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::set<std::string>> news_;  // for the journal: hosts by what there is to tell of them
  std::chrono::steady_clock::time_point told_{};
};

/// Whether this is a name of this machine.
[[nodiscard]] bool is_this_host(const std::string& name);

}  // namespace convoy
