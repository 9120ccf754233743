// SPDX-License-Identifier: Apache-2.0
//
// The checksum of HDF5's Fletcher32 filter, for chunks that are handed to the library with their checksum in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace convoy {

/// Fletcher's checksum of 16-bit big-endian words modulo 65535 ("An Arithmetic Checksum for Serial Transmissions",
/// 1982), as H5_checksum_fletcher32 of HDF5 gives it: the sum of sums in the upper half, the sum in the lower; an odd
/// last byte counts as a word's upper half.
[[nodiscard]] std::uint32_t fletcher32(std::span<const std::byte> bytes);

}  // namespace convoy
