// SPDX-License-Identifier: Apache-2.0
#include "io/images/image_decoder.h"

#include "layers/base/error.h"

namespace convoy {

ImageHeader ImageDecoder::open(std::span<const std::byte> bytes) {
  if (bytes.empty()) fail("the file is empty");
  is_png_ = is_png(bytes);
  if (is_png_) return png_.open(bytes);
  const bool is_jpeg = bytes.size() < 2 || (bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8});
  if (is_jpeg) return jpeg_.open(bytes);
  fail("neither JPEG nor PNG: it starts with {:#04x} {:#04x}", std::to_integer<int>(bytes[0]),
       std::to_integer<int>(bytes[1]));
}

DecodedPixels ImageDecoder::decode(const PixelBox& box, int least_width, int least_height, int channels) {
  return is_png_ ? png_.decode(box, channels) : jpeg_.decode(box, least_width, least_height, channels);
}

}  // namespace convoy
