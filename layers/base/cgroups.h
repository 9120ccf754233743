// SPDX-License-Identifier: Apache-2.0
//
// The control groups of this process, version 1 and 2 (cgroups(7)): where the kernel shows their files. Containers and
// batch systems set limits there. Invariant: what cannot be read or understood counts as no group.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/base/file_text.h"

namespace convoy {

struct Cgroup {
  std::string folder;  ///< "/sys/fs/cgroup/slurm/job_7"
  std::string path;    ///< below the mount point, "/" at the top
  bool v2 = true;
};

/// The content of a file; nothing: it is not there.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// The process's group and all above it as far as they are visible, the lowest first, in the hierarchy of version 2 and
/// then in that of version 1 that has this controller ("cpu", "memory"). A group need not have a limit.
[[nodiscard]] std::vector<Cgroup> cgroups_of(std::string_view controller, const FileReader& read = file_text);

}  // namespace convoy
