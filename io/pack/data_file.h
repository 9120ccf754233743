// SPDX-License-Identifier: Apache-2.0
//
// Writes data files (docs/interface.md) of any size without holding them: samples are appended to a plain file from a
// known place on, and when their number is known, HDF5 writes a frame, a sparse file whose bulk data sets lie exactly
// there; what lies before and behind them is then copied around the samples. Relies on hdf5_check.h and on a file
// system with holes. Invariant: the bulk data sets of a frame are contiguous and follow one another without a gap.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

/// One group of a data file.
struct DataFileGroup {
  std::string path;                   ///< "" for the root, else "/train"
  std::vector<std::int64_t> offsets;  ///< [N + 1], from 0; of JPEGs only
  std::vector<std::int64_t> labels;   ///< [N]
};

struct DataFileFrame {
  std::vector<std::int64_t> image;  ///< [H, W, C] of the samples; empty: JPEGs
  std::vector<std::string> class_names;
  std::vector<DataFileGroup> groups;  ///< in the order of their samples

  /// Of all samples together.
  [[nodiscard]] std::int64_t bulk_bytes() const;
};

/// Writes the frame to `path` and gives the byte at which the samples start, which depends on the groups' names alone.
[[nodiscard]] std::int64_t write_frame(const std::string& path, const DataFileFrame& frame);

/// Copies what of the frame file is no sample to the open file `descriptor` ("path" in errors), which so becomes the
/// data file.
void copy_around_bulk(const std::string& frame_path, std::int64_t start, std::int64_t bulk, int descriptor,
                      const std::string& path);

}  // namespace convoy
