// SPDX-License-Identifier: Apache-2.0
//
// Validation of HDF5 files in a child process. The HDF5 library trusts the structure of the files that it reads: a
// damaged one can crash it or make it loop, and a training with it. So a child reads an untrusted file first: its
// groups, attributes and indices wholly, of its elements those that the library itself decodes. The caller holds
// library_lock().
//
// The child is this program (run_self.h). Its main() begins with validate_if_child(); in a program without that
// call files are not validated.
#pragma once

#include <string>
#include <vector>

namespace convoy::hdf5 {

/// First in main(): a child that is to validate files does so and ends here.
void validate_if_child(int argc, char** argv);

/// Throws an Error that names the file when the library crashes on it or does not end. Other problems are left to who
/// opens the file. A file is not read again until it changes. Where the system has no capacity
/// for a child the file counts as valid.
void validate(const std::string& path);

/// Validates many files in one child, which costs less than one each, and throws nothing: validate() then names the
/// file at fault.
void validate_together(const std::vector<std::string>& paths);

/// What is known of files, as text, and how another process takes it over: the ranks of a job from rank 0.
[[nodiscard]] std::string validated_files();
void add_validated_files(const std::string& text);

}  // namespace convoy::hdf5
