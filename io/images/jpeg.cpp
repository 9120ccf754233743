// SPDX-License-Identifier: Apache-2.0
#include "io/images/jpeg.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/images/baseline_jpeg.h"
#include "io/images/exif.h"
#include "io/images/libjpeg.h"
#include "io/images/luma.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kExif = JPEG_APP0 + 1;

// How the shown image lies in the stored one: transposed first, then mirrored left to right and top to bottom.
struct Turn {
  bool transpose, mirror_x, mirror_y;
};
constexpr std::array<Turn, 9> kTurns{{{false, false, false},
                                      {false, false, false},
                                      {false, true, false},
                                      {false, true, true},
                                      {false, false, true},
                                      {true, false, false},
                                      {true, true, false},
                                      {true, true, true},
                                      {true, false, true}}};

// Pillow's MULDIV255: a * b / 255, rounded.
int multiply_255(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// In place, from 4 bytes a pixel (255 - ink, as Adobe stores them) to 3. Pillow: Convert.c, cmyk2rgb.
void cmyk_to_rgb(std::uint8_t* row, int width) {
  const std::uint8_t* in = row;
  for (int x = 0; x < width; ++x, in += 4) {
    const int light = in[3];
    for (int c = 0; c < 3; ++c) *row++ = static_cast<std::uint8_t>(light - multiply_255(255 - in[c], light));
  }
}

// Pixel (x, y) of the shown buffer comes from the stored one, of stored_width x stored_height.
void turn_pixels(const std::uint8_t* stored, int stored_width, int stored_height, int channels, Turn turn,
                 std::uint8_t* shown) {
  const int width = turn.transpose ? stored_height : stored_width;
  const int height = turn.transpose ? stored_width : stored_height;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      int u = turn.mirror_x ? width - 1 - x : x, v = turn.mirror_y ? height - 1 - y : y;
      if (turn.transpose) std::swap(u, v);
      const std::uint8_t* from = stored + (std::size_t(v) * std::size_t(stored_width) + std::size_t(u)) * channels;
      for (int c = 0; c < channels; ++c) *shown++ = from[c];
    }
  }
}

// Files of several scans are held as coefficients: two bytes each, of the whole image. Of one whose header has been
// read:
std::int64_t coefficient_bytes(const jpeg_decompress_struct& d) {
  std::int64_t blocks = 0;
  for (int i = 0; i < d.num_components; ++i) {
    blocks += std::int64_t{d.comp_info[i].width_in_blocks} * std::int64_t{d.comp_info[i].height_in_blocks};
  }
  return blocks * DCTSIZE2 * static_cast<std::int64_t>(sizeof(JCOEF));
}

}  // namespace

struct JpegDecoder::State {
  JpegDecompressor libjpeg{true};
  BaselineJpeg baseline;

  // Of the image at hand.
  const unsigned char* bytes = nullptr;
  unsigned long size = 0;
  int orientation = 1;
  int eighths = 8;  // scale of decoding
  J_COLOR_SPACE colors = JCS_RGB;
  ScaledPart part;
  std::vector<std::uint8_t> pixels, turned;

  // Each runs under guarded().
  static void read_header(State& s);
  static void start(State& s);
  static void read_rows(State& s);

  void choose_scale(const PixelBox& box, int least_width, int least_height, bool transpose);
  void place(const PixelBox& stored);
  const std::uint8_t* decode_part(int channels);
};

void JpegDecoder::State::read_header(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  jpeg_save_markers(&d, kExif, 0xFFFF);
  jpeg_mem_src(&d, s.bytes, s.size);
  jpeg_read_header(&d, TRUE);
}

void JpegDecoder::State::start(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  set_jpeg_output(d, s.eighths, s.colors);
  jpeg_start_decompress(&d);
  auto column = static_cast<JDIMENSION>(s.part.first_column), columns = static_cast<JDIMENSION>(s.part.columns);
  if (columns < d.output_width) jpeg_crop_scanline(&d, &column, &columns);
  s.part.first_column = static_cast<int>(column);
  s.part.columns = static_cast<int>(columns);
}

void JpegDecoder::State::read_rows(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  if (s.part.first_row > 0) jpeg_skip_scanlines(&d, static_cast<JDIMENSION>(s.part.first_row));
  read_jpeg_rows(d, s.part.rows, s.pixels.data());
  jpeg_abort_decompress(&d);  // rows below are not wanted
}

void JpegDecoder::State::choose_scale(const PixelBox& box, int least_width, int least_height, bool transpose) {
  if (transpose) std::swap(least_width, least_height);
  eighths = 8;
  for (const int smaller : {4, 2, 1}) {  // libjpeg-turbo is quick at these alone
    if (box.width * smaller >= 8 * least_width && box.height * smaller >= 8 * least_height) eighths = smaller;
  }
}

void JpegDecoder::State::place(const PixelBox& stored) {
  const auto down = [&](int full) { return full * eighths / 8; };
  const auto up = [&](int full) { return (full * eighths + 7) / 8; };
  const auto span = [&](int first, int length, JDIMENSION image, int& start, int& count) {
    start = std::max(0, down(first) - kChromaMargin);
    count = std::min(up(static_cast<int>(image)), up(first + length) + kChromaMargin) - start;
  };
  span(stored.top, stored.height, libjpeg.info.image_height, part.first_row, part.rows);
  span(stored.left, stored.width, libjpeg.info.image_width, part.first_column, part.columns);
}

const std::uint8_t* JpegDecoder::State::decode_part(int channels) {
  const J_COLOR_SPACE stored = libjpeg.info.jpeg_color_space;
  const bool inks = stored == JCS_CMYK || stored == JCS_YCCK;
  colors = inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  const std::uint8_t* decoded = baseline.decode(libjpeg.info, eighths, colors, part);
  if (decoded != nullptr) return decoded;
  libjpeg.guarded(start, *this);
  pixels.resize(std::size_t(part.rows) * jpeg_row_bytes(libjpeg.info));
  libjpeg.guarded(read_rows, *this);
  if (inks) {
    const std::size_t pixel_count = std::size_t(part.rows) * std::size_t(part.columns);
    cmyk_to_rgb(pixels.data(), static_cast<int>(pixel_count));
    if (channels == 1) rgb_to_grey(pixels.data(), pixel_count);
  }
  return pixels.data();
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}

JpegDecoder::~JpegDecoder() = default;

ImageHeader JpegDecoder::open(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (bytes.empty()) fail("the file is empty");
  s.bytes = reinterpret_cast<const unsigned char*>(bytes.data());
  s.size = bytes.size();
  s.libjpeg.reset();
  s.libjpeg.guarded(State::read_header, s);
  const jpeg_decompress_struct& d = s.libjpeg.info;
  const std::int64_t width = d.image_width, height = d.image_height;
  check_image_size(width, height);
  if (d.num_components != 1 && d.num_components != 3 && d.num_components != 4) {
    fail("{} colour components (1, 3 or 4)", d.num_components);
  }
  if (jpeg_has_multiple_scans(&s.libjpeg.info) != 0 && coefficient_bytes(d) > kMaxDecodingBytes) {
    fail("{} x {} pixels, progressive, need {} bytes to decode (at most {})", width, height, coefficient_bytes(d),
         kMaxDecodingBytes);
  }
  s.orientation = 1;
  for (const auto* marker = d.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker != kExif) continue;
    s.orientation = exif_orientation({marker->data, marker->data_length});
    break;
  }
  ImageHeader header{static_cast<int>(width), static_cast<int>(height), d.num_components, s.orientation};
  if (kTurns[static_cast<std::size_t>(s.orientation)].transpose) std::swap(header.width, header.height);
  return header;
}

DecodedPixels JpegDecoder::decode(const PixelBox& box, int least_width, int least_height, int channels) {
  State& s = *state_;
  const Turn turn = kTurns[static_cast<std::size_t>(s.orientation)];
  const jpeg_decompress_struct& d = s.libjpeg.info;
  const int stored_width = static_cast<int>(d.image_width), stored_height = static_cast<int>(d.image_height);
  const int width = turn.transpose ? stored_height : stored_width;
  const int height = turn.transpose ? stored_width : stored_height;
  PixelBox stored = box;
  if (turn.mirror_x) stored.left = width - box.left - box.width;
  if (turn.mirror_y) stored.top = height - box.top - box.height;
  if (turn.transpose) stored = {stored.top, stored.left, box.height, box.width};
  s.choose_scale(stored, least_width, least_height, turn.transpose);
  s.place(stored);
  const std::uint8_t* pixels = s.decode_part(channels);

  const double scale = s.eighths / 8.0;
  const ScaledPart& part = s.part;
  DecodedPixels result{pixels, part.columns, part.rows, channels, part.first_column / scale, part.first_row / scale,
                       scale};
  if (s.orientation == 1) return result;
  s.turned.resize(std::size_t(part.rows) * std::size_t(part.columns) * std::size_t(channels));
  turn_pixels(pixels, part.columns, part.rows, channels, turn, s.turned.data());
  result.pixels = s.turned.data();
  if (turn.transpose) {
    std::swap(result.width, result.height);
    std::swap(result.left, result.top);
  }
  if (turn.mirror_x) result.left = width - result.left - result.width / scale;
  if (turn.mirror_y) result.top = height - result.top - result.height / scale;
  return result;
}

}  // namespace convoy
