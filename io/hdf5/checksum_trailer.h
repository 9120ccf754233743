// SPDX-License-Identifier: Apache-2.0
//
// The checksum trailer of an HDF5 file: a CRC-32C of the whole file in one line of text behind the HDF5 data. It is
// verified before HDF5 parses anything, because the library's own checksums leave gaps (text attributes are in a heap
// that has none), and because a damaged heap can make it loop. HDF5 ignores data after its end of file and truncates it
// when a program changes the file: an edited file has no trailer rather than a wrong one. A file with a valid trailer
// is byte for byte what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace convoy {

/// The line to append to `bytes` bytes with this CRC-32C.
[[nodiscard]] std::string trailer_line(std::uint32_t crc, std::uint64_t bytes);
/// The same for these bytes.
[[nodiscard]] std::string trailer_for(std::span<const std::byte> file);

/// Ends the open file `descriptor` with it, behind its first `end` bytes, which have this CRC-32C. `path` names it in
/// the Error.
void append_trailer(int descriptor, std::uint32_t crc, std::int64_t end, const std::string& path);

enum class Trailer { kNone, kHolds, kBroken };

struct TrailerCheck {
  Trailer trailer = Trailer::kNone;
  std::string problem;  ///< when it is invalid: "truncated: ..." or "damaged: ..."
};

/// Reads the entire file if it has a trailer. Throws an Error if, and only if, it cannot be read.
[[nodiscard]] TrailerCheck check_trailer(const std::string& path);

/// Reads the entire file. Why that fails, in a sentence; empty if all of it can be read.
[[nodiscard]] std::string read_problem(const std::string& path);

}  // namespace convoy
