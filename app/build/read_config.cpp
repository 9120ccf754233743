// SPDX-License-Identifier: Apache-2.0
#include "app/build/read_config.h"

#include "app/build/config_checks.h"
#include "layers/base/error.h"
#include "layers/base/option_error.h"

namespace convoy {

Config parse_config(std::string_view text, const std::string& path, const std::vector<std::string>& overrides,
                    InputFiles files) {
  ParsedConfig parsed = parse_keys(text, path, overrides, files);
  try {
    check_config(parsed.config);
  } catch (const OptionError& error) {
    throw Error(fmt::format("{}: {}", parsed.place(error.key()), error.what()), error.code());
  }
  return std::move(parsed.config);
}

Config read_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_config(read_config_text(path), path, overrides);
}

}  // namespace convoy
