// SPDX-License-Identifier: Apache-2.0
#include "io/images/libjpeg.h"

#include <algorithm>
#include <string>

#include <jerror.h>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr int kMaxScans = 500;  // a progressive file has about ten; each costs a walk over the whole image

JpegDecompressor& of(j_common_ptr common) { return *static_cast<JpegDecompressor*>(common->client_data); }

}  // namespace

JpegDecompressor::JpegDecompressor(bool warnings_fail) : warnings_fail_(warnings_fail) {
  info.err = jpeg_std_error(&errors_);
  errors_.error_exit = stop;
  errors_.emit_message = notice;
  info.client_data = this;
  progress_.progress_monitor = watch_scans;
  guarded(create, *this);
}

void JpegDecompressor::reset() {
  jpeg_destroy_decompress(&info);
  guarded(create, *this);
}

void JpegDecompressor::create(JpegDecompressor& self) {
  jpeg_create_decompress(&self.info);
  self.info.progress = &self.progress_;
}

void JpegDecompressor::stop(j_common_ptr common) {
  JpegDecompressor& self = of(common);
  common->err->format_message(common, self.message_.data());
  std::longjmp(self.jump_,
               1);  // NOLINT(cert-err52-cpp): through C code, as libjpeg asks; nothing to destroy in between
}

void JpegDecompressor::notice(j_common_ptr common, int level) {
  if (level >= 0 || !of(common).warnings_fail_) return;
  const int code = common->err->msg_code;
  const bool harmless =
      code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_ICC;
  if (!harmless) stop(common);
}

void JpegDecompressor::watch_scans(j_common_ptr common) {
  if (!common->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMaxScans) return;
  JpegDecompressor& self = of(common);
  std::snprintf(self.message_.data(), self.message_.size(), "more than %d scans", kMaxScans);
  std::longjmp(self.jump_, 1);  // NOLINT(cert-err52-cpp): as above
}

void JpegDecompressor::give_up() {
  const std::string problem = message_.data();
  jpeg_abort_decompress(&info);
  throw Error(problem);
}

void set_jpeg_output(jpeg_decompress_struct& d, int eighths, J_COLOR_SPACE colors) {
  d.scale_num = static_cast<unsigned>(eighths);
  d.scale_denom = DCTSIZE;
  d.out_color_space = colors;
  d.dct_method = JDCT_ISLOW;
}

void read_jpeg_rows(jpeg_decompress_struct& d, int count, std::uint8_t* to) {
  constexpr int kRowsAtOnce = 16;
  std::array<JSAMPROW, kRowsAtOnce> rows;
  for (int done = 0; done < count;) {
    const int some = std::min(kRowsAtOnce, count - done);
    for (int i = 0; i < some; ++i) {
      rows[static_cast<std::size_t>(i)] = to + static_cast<std::size_t>(done + i) * jpeg_row_bytes(d);
    }
    done += static_cast<int>(jpeg_read_scanlines(&d, rows.data(), static_cast<JDIMENSION>(some)));
  }
}

}  // namespace convoy
