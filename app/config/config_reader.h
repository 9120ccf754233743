// SPDX-License-Identifier: Apache-2.0
//
// A TOML file and --set overrides to a Config whose keys are good one by one (app/build/read_config.h checks them
// together). Everything wrong is a usage Error that reads `FILE:LINE:COLUMN: section.key: what is wrong (what would be
// right)`, with `--set` as the place of overrides. Values are never converted, except an integer where a number is
// expected.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/config.h"

namespace convoy {

/// Whether files that the config names (data, weights, the checkpoint to resume) are looked for: first as written,
/// from the current folder, then in the config file's folder. kTrust keeps them as written: for ranks that are
/// given what rank 0 has resolved.
enum class InputFiles { kLookFor, kTrust };

/// A Config, and the place in the file or on the command line where a key was given, or would have been.
struct ParsedConfig {
  Config config;
  std::function<std::string(std::string_view)> place;
};

/// `text` is the content of the file `path`; `overrides` are "section.key=value", where value is TOML, or text where a
/// string is expected, or "-section.key", which leaves a key of the file out. An override of train.epochs replaces the
/// file's train.steps, and the other way round.
[[nodiscard]] ParsedConfig parse_keys(std::string_view text, const std::string& path,
                                      const std::vector<std::string>& overrides, InputFiles files);

/// The content of the file, for parse_keys.
[[nodiscard]] std::string read_config_text(const std::string& path);

}  // namespace convoy
