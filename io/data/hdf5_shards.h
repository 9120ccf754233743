// SPDX-License-Identifier: Apache-2.0
//
// Samples of HDF5 data files, whether one file or shards that together are one: opens what a source names, FILE,
// FILE:/GROUP or, of shards, PATTERN or PATTERN:/GROUP. Relies on shards.h, hdf5_dataset.h and hdf5_jpegs.h. Invariant:
// shards in order are the samples of the unsharded file, under the same indices.
#pragma once

#include <memory>
#include <string>

#include "io/data/dataset.h"
#include "io/data/encoded_images.h"

namespace convoy {

class ByteUnpacker;

/// Whether there is such a source and it holds encoded JPEGs. Throws find_shards()' Error.
[[nodiscard]] bool has_hdf5_jpegs(const std::string& source);

/// signals, verify: as Hdf5Dataset and Hdf5Jpegs have them. Both throw an Error of bad input that names the file; of
/// shards that do not go together, the first that differs.
[[nodiscard]] std::unique_ptr<Dataset> open_hdf5(const std::string& source, bool signals = false, bool verify = false,
                                                 bool labelled = true);
[[nodiscard]] std::unique_ptr<EncodedImages> open_hdf5_jpegs(const std::string& source, bool verify = false,
                                                             bool labelled = true);

/// The same from pack(): no file is looked at before a sample is read. source: as there, but the files may lie in
/// another folder.
[[nodiscard]] std::unique_ptr<Dataset> unpack_hdf5(const std::string& source, ByteUnpacker& packed);
[[nodiscard]] std::unique_ptr<EncodedImages> unpack_hdf5_jpegs(const std::string& source, ByteUnpacker& packed);

}  // namespace convoy
