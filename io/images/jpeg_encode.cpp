// SPDX-License-Identifier: Apache-2.0
//
// As in libjpeg.h an error of libjpeg jumps back into the one function that called it, which holds nothing with a
// destructor while it may.
#include "io/images/jpeg_encode.h"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "layers/base/error.h"

namespace convoy {

namespace {

struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* memory = nullptr;  // libjpeg's own, by malloc()
  unsigned long size = 0;

  [[noreturn]] static void stop(j_common_ptr common) {
    auto& self = *static_cast<Encoder*>(common->client_data);
    common->err->format_message(common, self.message.data());
    std::longjmp(self.jump, 1);
  }

  // False when there is a message instead of an image.
  bool run(const std::uint8_t* pixels, int width, int height, int channels, int quality) {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = stop;
    info.client_data = this;
    if (setjmp(jump) != 0) {
      jpeg_destroy_compress(&info);
      return false;
    }
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = static_cast<JDIMENSION>(width);
    info.image_height = static_cast<JDIMENSION>(height);
    info.input_components = channels;
    info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    const std::size_t stride = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
    while (info.next_scanline < info.image_height) {
      JSAMPROW row = const_cast<JSAMPROW>(pixels + info.next_scanline * stride);  // libjpeg only reads it
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return true;
  }
};

}  // namespace

void append_jpeg(const std::uint8_t* pixels, int width, int height, int channels, int quality,
                 std::vector<std::byte>& bytes) {
  Encoder encoder;
  const bool done = encoder.run(pixels, width, height, channels, quality);
  const auto* first = reinterpret_cast<const std::byte*>(encoder.memory);
  if (done) bytes.insert(bytes.end(), first, first + encoder.size);
  std::free(encoder.memory);  // NOLINT: libjpeg's
  if (!done) fail("{}", encoder.message.data());
}

}  // namespace convoy
