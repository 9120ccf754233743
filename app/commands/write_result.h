// SPDX-License-Identifier: Apache-2.0
//
// Files of results that an option of a command names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace convoy {

/// Where the links lead from `path`; a file need not be there. Throws a SystemError.
[[nodiscard]] std::string behind_links(const std::string& path);

/// Writes a file whole or not at all, where symbolic links lead; devices, pipes and what /dev/stdout stands for are
/// written as they are. Throws a SystemError.
void write_output(const std::string& path, std::span<const std::byte> bytes);

/// The same; errors begin with the option ("--json"). A path that is wrong is a usage Error.
void write_result(const char* option, const std::string& path, std::span<const std::byte> bytes);

/// Throws an Error that begins with the option if `path` is a folder, or its folder is not there or may not be written;
/// for before the work that the file is to hold. An empty path is no file. Writes nothing.
void check_result_path(const char* option, const std::string& path);

/// An option and the file that it names; empty: it was not given.
struct ResultFile {
  const char* option;
  std::string path;
};

/// Throws a usage Error if two of these are one file, or if one would replace a file that the command reads. inputs:
/// files, and folders for all that is in them.
void check_results(const std::vector<ResultFile>& results, const std::vector<std::string>& inputs);

/// What a command reads of a run's folder.
[[nodiscard]] std::vector<std::string> files_of_run(const std::string& folder);

}  // namespace convoy
