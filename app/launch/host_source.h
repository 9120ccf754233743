// SPDX-License-Identifier: Apache-2.0
//
// Where hosts come from: a file, a command, this machine. slurm_hosts.h reads the Slurm allocation. A source is read
// again and again. Invariant: read() either returns a whole list or throws a usage Error
// that names file and line, or the command; it returns in bounded time where the file system does.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "app/launch/host_list.h"

namespace convoy {

class HostSource {
 public:
  HostSource() = default;
  virtual ~HostSource() = default;
  HostSource(const HostSource&) = delete;
  HostSource& operator=(const HostSource&) = delete;
  [[nodiscard]] virtual HostList read() = 0;
  /// From one read() to the next.
  [[nodiscard]] virtual std::chrono::milliseconds interval() const = 0;
  /// "hosts.txt", "the Slurm allocation", for messages.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// A file with mpirun's syntax.
[[nodiscard]] std::unique_ptr<HostSource> hosts_from_file(const std::string& path);
/// What a shell command prints, in the same syntax.
[[nodiscard]] std::unique_ptr<HostSource> hosts_from_command(const std::string& command);
/// This machine alone.
[[nodiscard]] std::unique_ptr<HostSource> local_host();

}  // namespace convoy
