// SPDX-License-Identifier: Apache-2.0
//
// What several keys must keep between them, as far as it can be told without opening the data. Run by the
// reader when every key by itself is good.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "app/config.h"

namespace convoy {

/// Throws a usage Error about the first thing wrong. `place` says where a key was given, or would have been.
void check_config(const Config& config, const std::function<std::string(std::string_view)>& place);

}  // namespace convoy
