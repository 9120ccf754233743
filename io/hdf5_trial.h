// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 library trusts the structure of the files that it reads: a damaged one can crash it or make it loop, and a
// training with it. So a file that nobody vouches for is read in a child process first (trial.h): its groups,
// attributes and indices wholly, of its elements those that the library itself decodes. Relies on library_lock() being
// held.
#pragma once

#include <string>
#include <vector>

namespace convoy::hdf5 {

/// An Error that names the file when the library crashes on it, or comes to no end. Of every other problem nothing is
/// said: who opens the file then meets it. Where the system has no room for a child the file is taken as it is.
void try_reading(const std::string& path);

/// Tries many files in one child, which costs less than one each: as long as this lives, try_reading() knows them. When
/// the child crashes it knows none, so that the file at fault is found. One at a time, on one thread.
class TriedTogether {
 public:
  explicit TriedTogether(const std::vector<std::string>& paths);
  ~TriedTogether();
  TriedTogether(const TriedTogether&) = delete;
  TriedTogether& operator=(const TriedTogether&) = delete;
};

}  // namespace convoy::hdf5
