// SPDX-License-Identifier: Apache-2.0
//
// The example configs and machines that come with the program, by name: `convoy train quickstart`. They are found
// relative to the program's own file, so that an installation may be moved.
#pragma once

#include <string>
#include <vector>

namespace convoy {

enum class ExampleKind {
  kConfig,   ///< CONFIGS/NAME.toml and CONFIGS/FOLDER/NAME.toml, named NAME and FOLDER/NAME
  kMachine,  ///< CONFIGS/machines/NAME.toml, for convoy plan --machine
};

/// The folder of the examples: `configs` beside the program (a build), else that of the installation. Empty if there is
/// none.
[[nodiscard]] std::string examples_folder();

/// The names in this folder, sorted.
[[nodiscard]] std::vector<std::string> example_names(const std::string& folder, ExampleKind kind);

/// The file that a user means by `named`: a file or folder that is there wins, then the example of that name. What can
/// only be a path (it has a "." in it, or begins with "/") is returned as it is. Throws a usage Error for a name that
/// is neither.
[[nodiscard]] std::string find_example(const std::string& named, ExampleKind kind,
                                       const std::string& folder = examples_folder());

}  // namespace convoy
