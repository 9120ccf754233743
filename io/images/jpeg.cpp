// SPDX-License-Identifier: Apache-2.0
//
// libjpeg reports errors through a callback that must not return. Here it jumps (longjmp) out of the library, back into
// guarded(): so the functions that run under it hold nothing with a destructor, and the Error is thrown outside.
#include "io/images/jpeg.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

#include "io/images/exif.h"
#include "io/images/luma.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxScans = 500;  // a progressive file has about ten; each costs a walk over the whole image
constexpr int kRowsAtOnce = 16;
constexpr int kMargin = 2;  // chroma is interpolated between neighbours: the box's edge needs some
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
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  // Of the image at hand.
  const unsigned char* bytes = nullptr;
  unsigned long size = 0;
  int orientation = 1;
  PixelBox stored{};  // what is wanted, in stored pixels
  int eighths = 8;    // scale of decoding
  bool grey = false;
  int first_row = 0, rows = 0, first_column = 0, columns = 0;  // of the scaled image
  unsigned bytes_per_pixel = 0;                                // as libjpeg writes them
  std::vector<std::uint8_t> pixels, turned;

  [[nodiscard]] std::uint8_t* row(int number) {
    return pixels.data() + std::size_t(number) * std::size_t(columns) * bytes_per_pixel;
  }

  static State& of(j_common_ptr common) { return *static_cast<State*>(common->client_data); }
  [[noreturn]] static void stop(j_common_ptr common);
  static void notice(j_common_ptr common, int level);
  static void watch_scans(j_common_ptr common);

  // Each runs under guarded().
  static void create(State& s);
  static void read_header(State& s);
  static void start(State& s);
  static void read_rows(State& s);

  void guarded(void (*body)(State&));
  void choose_scale(const PixelBox& box, int least_width, int least_height, bool transpose);
  void to_channels(int channels);
};

void JpegDecoder::State::stop(j_common_ptr common) {
  State& s = of(common);
  common->err->format_message(common, s.message.data());
  std::longjmp(s.jump, 1);  // NOLINT(cert-err52-cpp): through C code, as libjpeg asks; nothing to destroy in between
}

// A warning means that pixels are made up, except a few kinds that do not concern pixels.
void JpegDecoder::State::notice(j_common_ptr common, int level) {
  if (level >= 0) return;
  const int code = common->err->msg_code;
  const bool harmless =
      code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_ICC;
  if (!harmless) stop(common);
}

void JpegDecoder::State::watch_scans(j_common_ptr common) {
  if (!common->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMaxScans) return;
  State& s = of(common);
  std::snprintf(s.message.data(), s.message.size(), "more than %d scans", kMaxScans);
  std::longjmp(s.jump, 1);  // NOLINT(cert-err52-cpp): as above
}

void JpegDecoder::State::guarded(void (*body)(State&)) {
  if (setjmp(jump) == 0) {  // NOLINT(cert-err52-cpp): as above
    body(*this);
    return;
  }
  const std::string problem = message.data();
  jpeg_abort_decompress(&info);
  throw Error(problem);
}

void JpegDecoder::State::create(State& s) {
  jpeg_create_decompress(&s.info);
  jpeg_save_markers(&s.info, kExif, 0xFFFF);
}

void JpegDecoder::State::read_header(State& s) {
  jpeg_abort_decompress(&s.info);  // what an earlier open() has left
  jpeg_mem_src(&s.info, s.bytes, s.size);
  jpeg_read_header(&s.info, TRUE);
}

// Sizes are known after it.
void JpegDecoder::State::start(State& s) {
  jpeg_decompress_struct& d = s.info;
  d.scale_num = static_cast<unsigned>(s.eighths);
  d.scale_denom = 8;
  d.dct_method = JDCT_ISLOW;
  if (d.jpeg_color_space == JCS_CMYK || d.jpeg_color_space == JCS_YCCK) {
    d.out_color_space = JCS_CMYK;
  } else {
    d.out_color_space = s.grey ? JCS_GRAYSCALE : JCS_RGB;
  }
  jpeg_start_decompress(&d);
  const auto down = [&](int full) { return full * s.eighths / 8; };
  const auto up = [&](int full) { return (full * s.eighths + 7) / 8; };
  const PixelBox& b = s.stored;
  s.first_row = std::max(0, down(b.top) - kMargin);
  s.rows = std::min(static_cast<int>(d.output_height), up(b.top + b.height) + kMargin) - s.first_row;
  const int left = std::max(0, down(b.left) - kMargin);
  const int right = std::min(static_cast<int>(d.output_width), up(b.left + b.width) + kMargin);
  auto column = static_cast<JDIMENSION>(left), columns = static_cast<JDIMENSION>(right - left);
  if (columns < d.output_width) jpeg_crop_scanline(&d, &column, &columns);
  s.first_column = static_cast<int>(column);
  s.columns = static_cast<int>(columns);
  s.bytes_per_pixel = static_cast<unsigned>(d.output_components);
}

void JpegDecoder::State::read_rows(State& s) {
  jpeg_decompress_struct& d = s.info;
  if (s.first_row > 0) jpeg_skip_scanlines(&d, static_cast<JDIMENSION>(s.first_row));
  std::array<JSAMPROW, kRowsAtOnce> rows;
  for (int done = 0; done < s.rows;) {
    const int count = std::min(kRowsAtOnce, s.rows - done);
    for (int i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = s.row(done + i);
    done += static_cast<int>(jpeg_read_scanlines(&d, rows.data(), static_cast<JDIMENSION>(count)));
  }
  jpeg_abort_decompress(&d);  // rows below are not wanted
}

void JpegDecoder::State::choose_scale(const PixelBox& box, int least_width, int least_height, bool transpose) {
  if (transpose) std::swap(least_width, least_height);
  eighths = 8;
  for (const int smaller : {4, 2, 1}) {  // libjpeg-turbo is quick at these alone
    if (box.width * smaller >= 8 * least_width && box.height * smaller >= 8 * least_height) eighths = smaller;
  }
}

void JpegDecoder::State::to_channels(int channels) {
  if (bytes_per_pixel == static_cast<unsigned>(channels)) return;
  const std::size_t pixel_count = std::size_t(rows) * std::size_t(columns);
  cmyk_to_rgb(pixels.data(), static_cast<int>(pixel_count));
  if (channels == 1) rgb_to_grey(pixels.data(), pixel_count);
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.info.err = jpeg_std_error(&s.errors);
  s.errors.error_exit = State::stop;
  s.errors.emit_message = State::notice;
  s.info.client_data = &s;
  s.guarded(State::create);
  s.progress.progress_monitor = State::watch_scans;
  s.info.progress = &s.progress;
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

ImageHeader JpegDecoder::open(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (bytes.empty()) fail("the file is empty");
  s.bytes = reinterpret_cast<const unsigned char*>(bytes.data());
  s.size = bytes.size();
  s.guarded(State::read_header);
  const jpeg_decompress_struct& d = s.info;
  const std::int64_t width = d.image_width, height = d.image_height;
  check_image_size(width, height);
  if (d.num_components != 1 && d.num_components != 3 && d.num_components != 4) {
    fail("{} colour components (1, 3 or 4)", d.num_components);
  }
  if (jpeg_has_multiple_scans(&s.info) != 0 && coefficient_bytes(d) > kMaxDecodingBytes) {
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
  const int stored_width = static_cast<int>(s.info.image_width), stored_height = static_cast<int>(s.info.image_height);
  const int width = turn.transpose ? stored_height : stored_width;
  const int height = turn.transpose ? stored_width : stored_height;
  s.stored = box;
  if (turn.mirror_x) s.stored.left = width - box.left - box.width;
  if (turn.mirror_y) s.stored.top = height - box.top - box.height;
  if (turn.transpose) {
    s.stored = {s.stored.top, s.stored.left, box.height, box.width};
  }
  s.choose_scale(s.stored, least_width, least_height, turn.transpose);
  s.grey = channels == 1;
  s.guarded(State::start);
  s.pixels.resize(std::size_t(s.rows) * std::size_t(s.columns) * s.bytes_per_pixel);
  s.guarded(State::read_rows);
  s.to_channels(channels);

  const double scale = s.eighths / 8.0;
  DecodedPixels result{s.pixels.data(),        s.columns,           s.rows, channels,
                       s.first_column / scale, s.first_row / scale, scale};
  if (s.orientation == 1) return result;
  s.turned.resize(std::size_t(s.rows) * std::size_t(s.columns) * std::size_t(channels));
  turn_pixels(s.pixels.data(), s.columns, s.rows, channels, turn, s.turned.data());
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
