// SPDX-License-Identifier: Apache-2.0
//
// A TOML file and --set overrides to a valid Config: the keys one by one (config_reader.h), then what they must fulfil
// together (config_checks.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/build/config_checks.h"
#include "app/config/config.h"
#include "app/config/config_reader.h"

namespace convoy {

/// Like parse_keys(), and the keys fit together.
[[nodiscard]] Config parse_config(std::string_view text, const std::string& path,
                                  const std::vector<std::string>& overrides = {},
                                  InputFiles files = InputFiles::kLookFor, DeviceCheck device = DeviceCheck::kBuild);

/// Runs `body`. Its errors about options and layers then begin with the place in the config where these are given.
void add_places(const Config& config, const std::function<void()>& body);

/// Reads the file, or the example config of that name (app/base/examples.h), and parses it.
[[nodiscard]] Config read_config(const std::string& path, const std::vector<std::string>& overrides = {},
                                 DeviceCheck device = DeviceCheck::kBuild);

}  // namespace convoy
