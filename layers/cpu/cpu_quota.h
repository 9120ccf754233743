// SPDX-License-Identifier: Apache-2.0
//
// The CPU time that control groups allow this process: cpu.max (version 2), cpu.cfs_quota_us and cpu.cfs_period_us
// (version 1), of the process's own group and of all groups above it. Containers and batch systems set them; the
// affinity mask does not show them. Invariant: files that cannot be read or understood count as no limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "layers/base/cgroups.h"

namespace convoy {

/// The strictest limit. Plain memory, so that ranks can exchange it as bytes.
struct CpuQuota {
  double cpus = 0;          ///< CPU seconds per second; 0: no limit
  std::uint64_t group = 0;  ///< identifies the control group among those of the node; 0: unknown
  bool operator==(const CpuQuota& other) const = default;
};

/// The limit of this process.
[[nodiscard]] CpuQuota cpu_quota();

/// Where cpu_quota() looks, for tests: files, and a number for a folder.
struct CgroupFiles {
  FileReader read;
  std::function<std::uint64_t(const std::string& folder)> identify;
};
[[nodiscard]] CpuQuota cpu_quota(const CgroupFiles& files);

}  // namespace convoy
