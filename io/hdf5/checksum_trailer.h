// SPDX-License-Identifier: Apache-2.0
//
// A checksum over a whole HDF5 file, as one line of text behind the part that HDF5 knows. It is looked at before HDF5
// parses anything, because the library's own checksums leave gaps (text attributes lie in a heap that has none), and
// because a damaged heap can make it loop. Relies on HDF5 ignoring what is behind its end of file, and on it cutting
// that off when a program changes the file: so an edited file has no seal, rather than a wrong one. Invariant: a file
// that still has its seal and passes is byte for byte what was written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace convoy {

/// The line to write behind these bytes.
[[nodiscard]] std::string trailer_for(std::span<const std::byte> file);

enum class Trailer { kNone, kHolds, kBroken };

struct TrailerCheck {
  Trailer seal = Trailer::kNone;
  std::string problem;  ///< of a broken one: "truncated: ..." or "damaged: ..."
};

/// Reads the whole file when it has a seal. An Error when it cannot be read.
[[nodiscard]] TrailerCheck check_trailer(const std::string& path);

}  // namespace convoy
