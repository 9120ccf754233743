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

#include "io/files/unnamed_file.h"
#include "io/pack/pixel_statistics.h"

namespace convoy {

/// One group of a data file.
struct DataFileGroup {
  std::string path;                      ///< "" for the root, else "/train"
  std::vector<std::int64_t> offsets;     ///< [N + 1], from 0; of encoded images only
  std::vector<std::int64_t> labels;      ///< [N]
  std::vector<std::uint32_t> checksums;  ///< [N], CRC-32C of the bytes of each sample
};

struct DataFileFrame {
  std::vector<std::int64_t> image;  ///< [H, W, C] of the samples; empty: encoded images
  PixelType type = PixelType::kUint8;
  std::vector<double> mean, deviation;  ///< of the first group's pixels, written as attributes; empty: not known
  std::vector<std::string> class_names;
  std::vector<DataFileGroup> groups;  ///< in the order of their samples

  /// Of all samples together.
  [[nodiscard]] std::int64_t bulk_bytes() const;
  /// CRC-32C of the bytes of all samples, in their order.
  [[nodiscard]] std::uint32_t bulk_checksum() const;
};

/// A frame in a file without a name, which goes with this object.
class FrameFile {
 public:
  /// Writes it to the folder of `beside`, which is used in messages.
  FrameFile(const std::string& beside, const DataFileFrame& frame);

  /// The byte at which the samples start, which depends on the groups' names alone.
  [[nodiscard]] std::int64_t start() const { return start_; }
  /// Copies what is no sample to the open file `descriptor` ("path" in errors), and appends the checksum trailer. So it
  /// becomes the data file. The checksums are those of the samples as they were packed: nothing is read back.
  void complete(int descriptor, const std::string& path) const;

 private:
  std::int64_t start_ = -1, bulk_ = 0;
  std::uint32_t bulk_checksum_ = 0;
  UnnamedFile file_;
};

}  // namespace convoy
