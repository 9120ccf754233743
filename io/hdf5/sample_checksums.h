// SPDX-License-Identifier: Apache-2.0
//
// The checksums of a packed data file (docs/interface.md): `crc32c` uint32 [N] in the group of the samples, one for
// each block, which is a sample: the CRC-32C of its bytes (pixels, or a JPEG) followed by its label as 8 bytes,
// little-endian. A read of one sample so needs no other bytes to be verified. Relies on hdf5.h and crc32c.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/hdf5_source.h"

namespace convoy {

/// Of a sample's bytes and its label. `bytes`: the checksum of the bytes alone.
[[nodiscard]] std::uint32_t sample_checksum(std::uint32_t bytes, std::int64_t label);

class SampleChecksums {
 public:
  /// The data set's name within the group.
  static constexpr const char* kName = "crc32c";

  /// Reads those of the group, for `size` samples. Throws a usage Error when there are none.
  SampleChecksums(const hdf5::File& file, const Hdf5Source& source, std::int64_t size);
  /// From pack().
  SampleChecksums(const Hdf5Source& source, ByteUnpacker& packed);
  void pack(BytePacker& packer) const;
  [[nodiscard]] static bool are_in(const hdf5::File& file, const Hdf5Source& source);

  /// Throws a usage Error that names the file and the block when the sample is not what was packed.
  void check(std::int64_t sample, std::span<const std::byte> bytes, std::int64_t label) const;

 private:
  std::string place_;
  std::vector<std::uint32_t> values_;
};

}  // namespace convoy
