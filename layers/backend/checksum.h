// SPDX-License-Identifier: Apache-2.0
//
// A checksum of memory that tells bit flips: a sum modulo 2^64 of 32-bit words times odd weights of 32 bits, one
// for each position. Any change
// within one word changes it for certain, since the product of a difference below 2^32 and a weight below 2^32 is no
// multiple of 2^64; changes of several words cancel with a probability of about 2^-32. Sums of parts add up, so parts
// may come in any order and from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convoy {

/// Of `bytes` bytes from `data`, which are words first, first + 1, ... of the whole. Nothing (0) in a rehearsal.
[[nodiscard]] std::uint64_t memory_checksum(const void* data, std::size_t bytes, std::int64_t first = 0);

}  // namespace convoy
