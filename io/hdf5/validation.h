// SPDX-License-Identifier: Apache-2.0
//
// Validation of HDF5 files in a child process. The HDF5 library trusts the structure of its input: a damaged file can
// crash it or make it loop, and the training with it. So a child process reads an untrusted file first: all groups,
// attributes and indices, and the elements that the library decodes. The caller holds library_lock().
//
// The child is this program (run_self.h): main() begins with validate_if_child(). A program without that call does not
// validate files.
#pragma once

#include <string>
#include <vector>

namespace convoy::hdf5 {

/// First call in main(): a child process that was started to validate files does so and exits.
void validate_if_child(int argc, char** argv);

/// Throws an Error that names the file when the library crashes on it or does not return. Other problems are reported
/// when the file is opened. Results are remembered until a file changes. If the system cannot create a process, the
/// file counts as valid.
void validate(const std::string& path);

/// Validates many files in one child process, which is faster than one process each, and does not throw: validate()
/// then names the damaged file.
void validate_together(const std::vector<std::string>& paths);

/// Serialises the results, and adds those of another process: rank 0 validates for all ranks of a job.
[[nodiscard]] std::string validated_files();
void add_validated_files(const std::string& text);

}  // namespace convoy::hdf5
