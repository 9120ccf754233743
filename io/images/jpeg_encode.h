// SPDX-License-Identifier: Apache-2.0
//
// Pixels to JPEG, as libjpeg does it by default: 4:2:0, standard Huffman tables. Relies on libjpeg-turbo. Invariant:
// equal pixels and quality give equal bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy {

/// Appends the JPEG of [height, width, channels] pixels, RGB (3) or grey (1), to `bytes`. quality: libjpeg's, 1 to 100.
/// Throws an Error with libjpeg's message.
void append_jpeg(const std::uint8_t* pixels, int width, int height, int channels, int quality,
                 std::vector<std::byte>& bytes);

}  // namespace convoy
