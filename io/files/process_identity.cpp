// SPDX-License-Identifier: Apache-2.0
#include "io/files/process_identity.h"

#include <fstream>

#include "layers/base/host_name.h"
#include "layers/base/process_state.h"

namespace convoy {

namespace {

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

ProcessIdentity this_process() {
  const ProcessId own = own_process();
  return {host_name(""), boot_id(), own.namespace_, own.pid, own.start};
}

Liveness liveness(const ProcessIdentity& process) {
  if (process.boot_id.empty() || process.boot_id != boot_id()) return Liveness::kUnknown;
  switch (process_state({process.pid, process.start_time, process.pid_namespace})) {
    case ProcessState::kGone: return Liveness::kEnded;
    case ProcessState::kUnknown: return Liveness::kUnknown;
    default: return Liveness::kRuns;
  }
}

}  // namespace convoy
