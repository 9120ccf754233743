// SPDX-License-Identifier: Apache-2.0
//
// What this machine calls itself. Relies on gethostname().
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace convoy {

/// `unknown` where the system does not say.
[[nodiscard]] inline std::string host_name(const std::string& unknown = "unknown host") {
  std::array<char, 256> host{};
  return gethostname(host.data(), host.size() - 1) == 0 ? host.data() : unknown;
}

}  // namespace convoy
