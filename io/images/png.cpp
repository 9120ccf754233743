// SPDX-License-Identifier: Apache-2.0
//
// libpng reports errors through a callback that must not return. As in libjpeg.h it jumps back into guarded(): the
// functions that run under it hold nothing with a destructor, and the Error is thrown outside.
#include "io/images/png.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <limits>

#include "io/images/luma.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::int64_t kLargestSide = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kSignatureBytes = 8;
constexpr int kMessageBytes = 256;

}  // namespace

std::string png_bytes(const Picture& picture) {
  const std::int64_t w = picture.width, h = picture.height;
  if (w < 1 || h < 1 || w > kLargestSide || h > kLargestSide) fail("a picture of {}x{} pixels is no PNG", w, h);
  if (picture.channels != 1 && picture.channels != 3) fail("a picture of {} channels (1 or 3)", picture.channels);
  if (picture.pixels.size() / static_cast<std::size_t>(w) / static_cast<std::size_t>(picture.channels) !=
          static_cast<std::size_t>(h) ||
      picture.pixels.size() % static_cast<std::size_t>(h) != 0) {
    fail("{} bytes for a picture of {}x{} pixels of {} channels", picture.pixels.size(), w, h, picture.channels);
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(w);
  image.height = static_cast<png_uint_32>(h);
  image.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;  // photographs gain little by filters
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr) == 0) {
    fail("libpng cannot write a picture of {}x{} pixels: {}", w, h, static_cast<const char*>(image.message));
  }
  bytes.resize(size);
  return bytes;
}

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignatureBytes &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) == 0;
}

struct PngDecoder::State {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  std::array<char, kMessageBytes> message{};

  // Of the image at hand.
  const png_byte* bytes = nullptr;
  std::size_t size = 0, at = 0;
  int height = 0, first_row = 0, last_row = 0;
  bool grey = false;
  std::size_t row_bytes = 0;
  int passes = 1;  // 7 when it is interlaced
  std::vector<png_byte> pixels, unused_row;

  [[noreturn]] static void stop(png_structp png, png_const_charp text);
  static void ignore(png_structp png, png_const_charp text);
  static void feed(png_structp png, png_bytep out, std::size_t count);

  // Each runs under guarded().
  static void read_header(State& s);
  static void start(State& s);
  static void read_rows(State& s);

  void guarded(void (*body)(State&));
  void close() { png_destroy_read_struct(&png, &info, nullptr); }
};

void PngDecoder::State::stop(png_structp png, png_const_charp text) {
  State& s = *static_cast<State*>(png_get_error_ptr(png));
  std::snprintf(s.message.data(), s.message.size(), "%s", text);
  std::longjmp(s.jump, 1);  // NOLINT(cert-err52-cpp): through C code, as libpng asks; nothing to destroy in between
}

// Warnings are about what does not concern pixels: chunks that are skipped anyway.
void PngDecoder::State::ignore(png_structp /*png*/, png_const_charp /*text*/) {}

void PngDecoder::State::feed(png_structp png, png_bytep out, std::size_t count) {
  State& s = *static_cast<State*>(png_get_io_ptr(png));
  if (count > s.size - s.at) png_error(png, "the PNG ends early");
  std::memcpy(out, s.bytes + s.at, count);
  s.at += count;
}

void PngDecoder::State::guarded(void (*body)(State&)) {
  if (setjmp(jump) == 0) {  // NOLINT(cert-err52-cpp): as above
    body(*this);
    return;
  }
  close();
  throw Error(message.data());
}

void PngDecoder::State::read_header(State& s) {
  s.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, stop, ignore);
  if (s.png != nullptr) s.info = png_create_info_struct(s.png);
  if (s.info == nullptr) {
    std::snprintf(s.message.data(), s.message.size(), "libpng %s cannot be used", png_get_libpng_ver(nullptr));
    std::longjmp(s.jump, 1);  // NOLINT(cert-err52-cpp): as above
  }
  png_set_read_fn(s.png, &s, feed);
  png_set_user_limits(s.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // open() has its own
  // No text, colour profile or other chunk is unpacked but those that pixels need: IHDR, PLTE, tRNS, IDAT, IEND.
  png_set_keep_unknown_chunks(s.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(s.png, s.info);
}

void PngDecoder::State::start(State& s) {
  png_set_scale_16(s.png);
  png_set_expand(s.png);
  png_set_strip_alpha(s.png);
  if (!s.grey) png_set_gray_to_rgb(s.png);
  s.passes = png_set_interlace_handling(s.png);
  png_read_update_info(s.png, s.info);
  s.row_bytes = png_get_rowbytes(s.png, s.info);
}

void PngDecoder::State::read_rows(State& s) {
  const bool to_the_end = s.last_row == s.height;
  for (int pass = 0; pass < s.passes; ++pass) {
    const int rows = pass == s.passes - 1 ? s.last_row : s.height;  // a pass is behind all rows of the one before
    for (int y = 0; y < rows; ++y) {
      const bool wanted = y >= s.first_row && y < s.last_row;
      png_bytep row =
          wanted ? s.pixels.data() + static_cast<std::size_t>(y - s.first_row) * s.row_bytes : s.unused_row.data();
      png_read_row(s.png, row, nullptr);
    }
  }
  if (to_the_end) png_read_end(s.png, nullptr);
}

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}

PngDecoder::~PngDecoder() { state_->close(); }

ImageHeader PngDecoder::open(std::span<const std::byte> bytes) {
  State& s = *state_;
  s.close();  // what an earlier open() has left
  s.bytes = reinterpret_cast<const png_byte*>(bytes.data());
  s.size = bytes.size();
  s.at = 0;
  s.guarded(State::read_header);
  const std::int64_t width = png_get_image_width(s.png, s.info), height = png_get_image_height(s.png, s.info);
  check_image_size(width, height);
  if (const std::int64_t needed = 3 * width * height; needed > kMaxDecodingBytes) {
    fail("{} x {} pixels need {} bytes to decode (at most {})", width, height, needed, kMaxDecodingBytes);
  }
  s.height = static_cast<int>(height);
  const int type = png_get_color_type(s.png, s.info);
  ImageHeader header{static_cast<int>(width), s.height, (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1};
  header.alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(s.png, s.info, PNG_INFO_tRNS) != 0;
  return header;
}

DecodedPixels PngDecoder::decode(const PixelBox& box, int channels) {
  State& s = *state_;
  if (s.png == nullptr) fail("no PNG is open");
  const int width = static_cast<int>(png_get_image_width(s.png, s.info));
  s.grey = channels == 1;
  s.first_row = box.top;
  s.last_row = box.top + box.height;
  s.guarded(State::start);
  s.pixels.resize(s.row_bytes * static_cast<std::size_t>(box.height));
  s.unused_row.resize(s.row_bytes);
  s.guarded(State::read_rows);
  const std::size_t count = static_cast<std::size_t>(width) * static_cast<std::size_t>(box.height);
  if (s.pixels.size() == 3 * count && channels == 1) rgb_to_grey(s.pixels.data(), count);
  s.close();
  return {s.pixels.data(), width, box.height, channels, 0, static_cast<double>(box.top), 1};
}

}  // namespace convoy
