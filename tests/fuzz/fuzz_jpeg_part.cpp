// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: parts of JPEGs (io/images/jpeg.h) against libjpeg's plain decoding of the whole. A part has its pixels,
// and is an Error only where libjpeg has one, or warns. The input is six bytes, which choose the channels, the box and
// the scale, and the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "io/images/jpeg.h"
#include "io/images/libjpeg.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace convoy;

struct Whole {
  std::span<const std::byte> bytes;
  int channels = 0, eighths = 0;
  JpegDecompressor libjpeg{true};
  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels;

  static void start(Whole& w) {
    jpeg_decompress_struct& d = w.libjpeg.info;
    jpeg_mem_src(&d, reinterpret_cast<const unsigned char*>(w.bytes.data()), w.bytes.size());
    jpeg_read_header(&d, TRUE);
    d.out_color_space = w.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d.scale_num = static_cast<unsigned>(w.eighths);
    d.scale_denom = 8;
    jpeg_start_decompress(&d);
    w.width = static_cast<int>(d.output_width);
    w.height = static_cast<int>(d.output_height);
  }
  static void read(Whole& w) { read_jpeg_rows(w.libjpeg.info, w.height, w.pixels.data()); }

  // Whether libjpeg has nothing to say about the image.
  bool decode() {
    try {
      libjpeg.guarded(start, *this);
      pixels.resize(std::size_t(width) * std::size_t(height) * std::size_t(channels));
      libjpeg.guarded(read, *this);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
};

std::optional<ImageHeader> open(JpegDecoder& decoder, std::span<const std::byte> file) {
  try {
    return decoder.open(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Ends the program unless the pixels of `box` are those of the whole.
void compare(const DecodedPixels& part, const PixelBox& box, const Whole& whole) {
  const auto scaled = [&](int pixels) { return pixels * part.scale; };
  const int left = static_cast<int>(scaled(box.left)), top = static_cast<int>(scaled(box.top));
  const int right = std::min(whole.width, static_cast<int>(scaled(box.left + box.width)));
  const int bottom = std::min(whole.height, static_cast<int>(scaled(box.top + box.height)));
  const int first_column = static_cast<int>(part.left * part.scale),
            first_row = static_cast<int>(part.top * part.scale);
  for (int y = top; y < bottom; ++y) {
    const std::uint8_t* got = part.pixels + ((y - first_row) * part.width + left - first_column) * part.channels;
    const std::uint8_t* expected = whole.pixels.data() + (y * whole.width + left) * part.channels;
    if (!std::equal(got, got + (right - left) * part.channels, expected)) std::abort();
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChoices = 6;
  constexpr std::int64_t kMaxPixels = 1 << 20;  // more only cost time
  if (size < kChoices) return 0;
  const auto file = std::as_bytes(std::span(data + kChoices, size - kChoices));
  const std::vector<std::byte> bytes(file.begin(), file.end());  // of just this size
  JpegDecoder decoder;
  const auto header = open(decoder, bytes);
  if (!header || header->components == 4 || header->orientation != 1) return 0;
  if (std::int64_t{header->width} * header->height > kMaxPixels) return 0;
  const auto below = [&](int choice, int limit) { return data[choice] * limit / 256; };
  PixelBox box{below(1, header->width), below(2, header->height), 0, 0};
  box.width = 1 + below(3, header->width - box.left);
  box.height = 1 + below(4, header->height - box.top);
  const int smaller = 1 << data[5] % 4, channels = data[0] % 2 == 0 ? 3 : 1;
  Whole whole;
  whole.bytes = bytes;
  whole.channels = channels;
  try {
    const DecodedPixels part =
        decoder.decode(box, std::max(1, box.width / smaller), std::max(1, box.height / smaller), channels);
    whole.eighths = static_cast<int>(8 * part.scale);
    if (whole.decode()) {
      compare(part, box, whole);
    } else if (box.top + box.height == header->height) {
      std::abort();  // of rows below the box, which the part does not read, libjpeg warns, too
    }
  } catch (const Error&) {
    whole.eighths = 8;
    if (whole.decode()) std::abort();
  }
  return 0;
}
