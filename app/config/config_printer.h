// SPDX-License-Identifier: Apache-2.0
//
// A Config as TOML that the reader takes back to an equal Config.
#pragma once

#include <string>

#include "app/config/config.h"

namespace convoy {

/// Every key that applies to this run, defaults too. With origins each line ends in `# default`, `# FILE:LINE` or
/// `# --set`.
[[nodiscard]] std::string resolved_toml(const Config& config, bool with_origins);

}  // namespace convoy
