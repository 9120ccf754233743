// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files may refer to other files: external storage, virtual data sets and external links make the library read any
// file that the user may read, as if it were data. File refuses such a file when it opens it, so that no reader has to
// ask. Soft links need no check of their own: they lead to other files only through one of these.
#pragma once

#include <cstdint>
#include <string>

namespace convoy::hdf5 {

/// Throws a usage Error that names the first object of the open file that refers to another file. Reads links and the
/// headers of data sets only, never the other file. The caller holds library_lock().
void refuse_outside_references(std::int64_t file, const std::string& path);

}  // namespace convoy::hdf5
