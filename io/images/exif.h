// SPDX-License-Identifier: Apache-2.0
//
// How a camera was held: the orientation in an Exif block (the APP1 marker of a JPEG). Exif 2.32 is TIFF 6.0 with tag
// 0x0112. Invariant: reads nothing outside the bytes that it is given, whatever they hold.
#pragma once

#include <cstdint>
#include <span>

namespace convoy {

/// marker: the contents of an APP1 marker, "Exif\0\0" first. Returns 1 to 8; 1 (as stored) when it says nothing, or
/// nothing that makes sense.
[[nodiscard]] int exif_orientation(std::span<const std::uint8_t> marker);

}  // namespace convoy
