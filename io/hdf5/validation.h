// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 library trusts the structure of the files that it reads: a damaged one can crash it or make it loop, and a
// training with it. So an untrusted file is read in a child process first (trial.h): its groups,
// attributes and indices wholly, of its elements those that the library itself decodes. Relies on library_lock() being
// held.
#pragma once

#include <string>
#include <vector>

namespace convoy::hdf5 {

/// An Error that names the file when the library crashes on it, or comes to no end. Of every other problem nothing is
/// said: who opens the file then meets it. A file that has been read once is not tried again until it changes. Where
/// the system has no room for a child the file is taken as it is.
void try_reading(const std::string& path);

/// Tries many files in one child, which costs less than one each, so that try_reading() knows them. When the child
/// crashes it knows none, and so finds the file at fault.
void try_reading_together(const std::vector<std::string>& paths);

}  // namespace convoy::hdf5
