// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli): the checksum of TensorBoard's record files and of the checksum trailer of a checkpoint.
// Invariant: crc32c("123456789") is 0xE3069283.
#pragma once

#include <cstdint>
#include <string_view>

namespace convoy {

/// The checksum of `bytes`. `before`: the checksum of preceding bytes; the result is then that of both together.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// The checksum of two pieces together, from that of each and the length of the second.
[[nodiscard]] std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

/// The same as crc32c() without the CPU's CRC instruction.
[[nodiscard]] std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t before = 0);

}  // namespace convoy
