// SPDX-License-Identifier: Apache-2.0
//
// libjpeg's decompressor. It reports errors through a callback that must not return; here that jumps (longjmp) out of
// the library, back into guarded().
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace convoy {

class JpegDecompressor {
 public:
  /// warnings_fail: a warning of libjpeg (its pixels are made up) is an error, except a few that do not concern pixels.
  explicit JpegDecompressor(bool warnings_fail);
  ~JpegDecompressor() { jpeg_destroy_decompress(&info); }
  JpegDecompressor(const JpegDecompressor&) = delete;
  JpegDecompressor& operator=(const JpegDecompressor&) = delete;

  /// Without anything of earlier images, as if new: libjpeg keeps their tables, and a file may lack its own.
  void reset();

  /// Calls body(state), which must hold nothing with a destructor while it calls libjpeg. Throws an Error with
  /// libjpeg's message; `info` can be used for the next image then.
  template <class State>
  void guarded(void (*body)(State&), State& state) {
    if (setjmp(jump_) != 0) give_up();  // NOLINT(cert-err52-cpp): through C code, as libjpeg asks
    body(state);
  }

  jpeg_decompress_struct info{};

 private:
  static void create(JpegDecompressor& self);
  [[noreturn]] static void stop(j_common_ptr common);
  static void notice(j_common_ptr common, int level);
  static void watch_scans(j_common_ptr common);
  [[noreturn]] void give_up();

  bool warnings_fail_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

/// What an image is decoded to, at eighths / 8 of its size. Before jpeg_start_decompress().
void set_jpeg_output(jpeg_decompress_struct& d, int eighths, J_COLOR_SPACE colors);

/// Bytes of a decoded row.
[[nodiscard]] inline std::size_t jpeg_row_bytes(const jpeg_decompress_struct& d) {
  return std::size_t{d.output_width} * static_cast<std::size_t>(d.output_components);
}

/// The next `count` decoded rows, one after the other. Runs under guarded().
void read_jpeg_rows(jpeg_decompress_struct& d, int count, std::uint8_t* to);

}  // namespace convoy
