// SPDX-License-Identifier: Apache-2.0
//
// On which hosts anything can be started. A host is tried before it is used and again after every failure, all hosts at
// the same time, without waiting; one that fails is left out, and tried again after 10, 20, 40 ... 600 s. Invariant:
// this machine is never tried, and always good.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/launch/child_process.h"
#include "app/launch/host_list.h"
#include "app/launch/journal.h"

namespace convoy {

class HostHealth {
 public:
  /// probe: the command that tries a host.
  HostHealth(std::function<std::vector<std::string>(const std::string& host)> probe, const Journal& journal);
  ~HostHealth();
  HostHealth(const HostHealth&) = delete;
  HostHealth& operator=(const HostHealth&) = delete;

  /// Tries what has not been tried, looks at what is under way, and returns those of `listed` that are good.
  HostList usable(const HostList& listed);
  /// Whether a first or renewed answer about one of `listed` is still to come.
  [[nodiscard]] bool busy(const HostList& listed) const;
  /// All are to be tried again before they are used: something has failed.
  void doubt();

 private:
  enum class Verdict { kUnknown, kGood, kBad };
  struct Entry {
    Verdict verdict = Verdict::kUnknown;
    int failures = 0;
    std::unique_ptr<ChildProcess> probe;
    std::chrono::steady_clock::time_point deadline;  // of the probe; when bad: of being left out
  };
  void poll(const std::string& name, Entry& entry);
  void finish(const std::string& name, Entry& entry, const std::string& problem);

  std::function<std::vector<std::string>(const std::string& host)> probe_;
  const Journal& journal_;
  int silence_;  // a descriptor of /dev/null
  std::map<std::string, Entry> entries_;
};

/// Whether the name is this machine's.
[[nodiscard]] bool is_this_host(const std::string& name);

}  // namespace convoy
