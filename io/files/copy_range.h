// SPDX-License-Identifier: Apache-2.0
//
// Copies a part of one open file into another, with its checksum.
#pragma once

#include <cstdint>
#include <string>

namespace convoy {

/// The bytes [first, last) of the file `from` become those of the file `to` from `at` on. Returns their CRC-32C behind
/// `before` (io/files/crc32c.h). `path` names `to` in the Error.
std::uint32_t copy_range(int from, std::int64_t first, std::int64_t last, int to, std::int64_t at,
                         const std::string& path, std::uint32_t before = 0);

}  // namespace convoy
