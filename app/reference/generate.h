// SPDX-License-Identifier: Apache-2.0
//
// convoy generate FOLDER: man pages and completion for the installation, from the definition of the command line and
// the list of config keys. The build calls it; it is not in --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace convoy::reference {

/// Writes FOLDER/man/man1/*.1, FOLDER/man/man5/convoy-config.5, FOLDER/bash-completion/completions/convoy,
/// FOLDER/zsh/site-functions/_convoy and FOLDER/fish/vendor_completions.d/convoy.fish. `app`: the command line as
/// defined. Names of examples are those in `examples`.
void generate(const CLI::App& app, const std::string& examples, const std::string& folder);

}  // namespace convoy::reference
