// SPDX-License-Identifier: Apache-2.0
//
// The smaller image is a file of headers with an empty scan. In buffered-image mode libjpeg reads all coefficients
// before it makes pixels: those of the first MCU from zero bits, the others are 0. All are overwritten in between.
#include "io/images/baseline_jpeg.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include "io/images/jpeg_huffman.h"
#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr std::int64_t kMaxCoefficientBytes = std::int64_t{32} << 20;  // larger parts go to libjpeg, which keeps none
constexpr int kLastCoefficient = DCTSIZE2 - 1;

// What libjpeg itself would complain about is left to it.
bool is_baseline(const jpeg_decompress_struct& d) {
  if (d.progressive_mode != 0 || d.arith_code != 0 || d.data_precision != 8) return false;
  if (d.num_components != 1 && d.num_components != kMaxScanComponents) return false;
  if (d.comps_in_scan != d.num_components || d.Ss != 0 || d.Se != kLastCoefficient || d.Ah != 0 || d.Al != 0) {
    return false;
  }
  int blocks = 0;
  for (int i = 0; i < d.num_components; ++i) {
    const jpeg_component_info& c = d.comp_info[i];
    blocks += c.h_samp_factor * c.v_samp_factor;
    if (d.cur_comp_info[i] != &c || c.dc_tbl_no >= NUM_HUFF_TBLS || c.ac_tbl_no >= NUM_HUFF_TBLS ||
        c.quant_tbl_no >= NUM_QUANT_TBLS || c.h_samp_factor > kMaxSampling || c.v_samp_factor > kMaxSampling) {
      return false;
    }
    if (d.dc_huff_tbl_ptrs[c.dc_tbl_no] == nullptr || d.ac_huff_tbl_ptrs[c.ac_tbl_no] == nullptr ||
        d.quant_tbl_ptrs[c.quant_tbl_no] == nullptr) {
      return false;
    }
  }
  return d.num_components == 1 || blocks <= kMaxBlocksInMcu;
}

bool set_table(HuffmanTable& table, const JHUFF_TBL& codes, HuffmanTable::Kind kind) {
  return table.set(std::span<const std::uint8_t, 17>(codes.bits), std::span<const std::uint8_t, 256>(codes.huffval),
                   kind);
}

constexpr int divide_up(int value, int unit) { return (value + unit - 1) / unit; }

}  // namespace

struct BaselineJpeg::State {
  JpegDecompressor libjpeg{false};  // it warns of the empty scan
  std::array<HuffmanTable, NUM_HUFF_TBLS> dc, ac;
  std::vector<std::uint8_t> pixels;

  // Of the image at hand. A component alone is in MCUs of one block, whatever its sampling (T.81, A.2.2).
  const jpeg_decompress_struct* whole = nullptr;
  int eighths = 8;
  J_COLOR_SPACE colors = JCS_RGB;
  int mcu_width = 0, mcu_height = 0;
  int left = 0, top = 0, width = 0, height = 0;  // the smaller image, in pixels of the whole
  int last_row = 0;                              // that is read, of the smaller image as it is scaled
  std::array<ScanComponent, kMaxScanComponents> components;
  std::array<JOCTET, 64> file{};
  std::size_t file_size = 0;
  bool good = false;

  bool prepare();
  void place(const ScaledPart& part);
  void write_file();

  // Each runs under guarded().
  static void open(State& s);
  static void read_coefficients(State& s);
  static void read_rows(State& s);
};

bool BaselineJpeg::State::prepare() {
  const jpeg_decompress_struct& d = *whole;
  if (!is_baseline(d)) return false;
  const bool alone = d.num_components == 1;
  mcu_width = DCTSIZE * (alone ? 1 : d.max_h_samp_factor);
  mcu_height = DCTSIZE * (alone ? 1 : d.max_v_samp_factor);
  for (int i = 0; i < d.num_components; ++i) {
    const jpeg_component_info& c = d.comp_info[i];
    HuffmanTable& dc_codes = dc[static_cast<std::size_t>(c.dc_tbl_no)];
    HuffmanTable& ac_codes = ac[static_cast<std::size_t>(c.ac_tbl_no)];
    if (!set_table(dc_codes, *d.dc_huff_tbl_ptrs[c.dc_tbl_no], HuffmanTable::Kind::kDc) ||
        !set_table(ac_codes, *d.ac_huff_tbl_ptrs[c.ac_tbl_no], HuffmanTable::Kind::kAc)) {
      return false;
    }
    components[static_cast<std::size_t>(i)] = {alone ? 1 : c.h_samp_factor, alone ? 1 : c.v_samp_factor, &dc_codes,
                                               &ac_codes};
  }
  return true;
}

// With the MCUs that chroma is interpolated from, above and below; on the sides the part has a margin. At least five
// pixels wide if the image is: libjpeg does not interpolate chroma of two pixels a row (jdsample.c).
void BaselineJpeg::State::place(const ScaledPart& part) {
  const int image_width = static_cast<int>(whole->image_width), image_height = static_cast<int>(whole->image_height);
  const auto full = [&](int scaled) { return scaled * DCTSIZE / eighths; };
  const int neighbours = full(kChromaMargin), least = full(5);
  left = std::min(full(part.first_column), std::max(0, image_width - least)) / mcu_width * mcu_width;
  top = std::max(0, full(part.first_row) - neighbours) / mcu_height * mcu_height;
  width = std::min(image_width, std::max(left + least, full(part.first_column + part.columns))) - left;
  const int bottom = divide_up(full(part.first_row + part.rows) + neighbours, mcu_height) * mcu_height;
  height = std::min(image_height, bottom) - top;
  last_row = part.first_row + part.rows - top * eighths / DCTSIZE;
}

// T.81, B.2: start of the image, frame, scan, end.
void BaselineJpeg::State::write_file() {
  const jpeg_decompress_struct& d = *whole;
  const int count = d.num_components;
  std::size_t at = 0;
  const auto put = [&](std::initializer_list<int> bytes) {
    for (const int byte : bytes) file[at++] = static_cast<JOCTET>(byte);
  };
  put({0xFF, 0xD8, 0xFF, 0xC0, 0, 8 + 3 * count, 8, height >> 8, height & 0xFF, width >> 8, width & 0xFF, count});
  for (int i = 0; i < count; ++i) {
    const ScanComponent& c = components[static_cast<std::size_t>(i)];
    put({d.comp_info[i].component_id, c.across << 4 | c.down, d.comp_info[i].quant_tbl_no});
  }
  put({0xFF, 0xDA, 0, 6 + 2 * count, count});
  for (int i = 0; i < count; ++i) {
    put({d.comp_info[i].component_id, d.comp_info[i].dc_tbl_no << 4 | d.comp_info[i].ac_tbl_no});
  }
  put({0, kLastCoefficient, 0, 0xFF, JPEG_EOI});
  file_size = at;
}

void BaselineJpeg::State::open(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  const auto common = reinterpret_cast<j_common_ptr>(&d);
  jpeg_abort_decompress(&d);
  jpeg_mem_src(&d, s.file.data(), s.file_size);
  jpeg_read_header(&d, TRUE);
  for (int i = 0; i < d.num_components; ++i) {
    const jpeg_component_info& c = d.comp_info[i];
    const auto copy = [&](JHUFF_TBL*& to, const JHUFF_TBL* from) {
      if (to == nullptr) to = jpeg_alloc_huff_table(common);
      *to = *from;
    };
    copy(d.dc_huff_tbl_ptrs[c.dc_tbl_no], s.whole->dc_huff_tbl_ptrs[c.dc_tbl_no]);
    copy(d.ac_huff_tbl_ptrs[c.ac_tbl_no], s.whole->ac_huff_tbl_ptrs[c.ac_tbl_no]);
    JQUANT_TBL*& quantisation = d.quant_tbl_ptrs[c.quant_tbl_no];
    if (quantisation == nullptr) quantisation = jpeg_alloc_quant_table(common);
    *quantisation = *s.whole->quant_tbl_ptrs[c.quant_tbl_no];
  }
  d.jpeg_color_space = s.whole->jpeg_color_space;
  set_jpeg_output(d, s.eighths, s.colors);
  d.buffered_image = TRUE;
  jpeg_start_decompress(&d);
  while (jpeg_input_complete(&d) == 0) jpeg_consume_input(&d);
}

void BaselineJpeg::State::read_coefficients(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  const auto count = static_cast<std::size_t>(d.num_components);
  const jpeg_source_mgr& source = *s.whole->src;
  const int mcus = divide_up(static_cast<int>(s.whole->image_width), s.mcu_width);
  BaselineScan scan(std::as_bytes(std::span(source.next_input_byte, source.bytes_in_buffer)),
                    std::span(s.components).first(count), mcus, static_cast<int>(s.whole->restart_interval));
  jvirt_barray_ptr* arrays = jpeg_read_coefficients(&d);
  const int first_row = s.top / s.mcu_height, first = s.left / s.mcu_width;
  const int rows = divide_up(s.height, s.mcu_height), last = first + divide_up(s.width, s.mcu_width);
  McuRow blocks{};
  s.good = true;
  for (int row = -first_row; row < rows && s.good; ++row) {
    if (row < 0) {
      s.good = scan.next_row(0, 0, blocks);
      continue;
    }
    for (std::size_t c = 0; c < count; ++c) {
      const int down = s.components[c].down;
      const JBLOCKARRAY of_component =
          d.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&d), arrays[c], static_cast<JDIMENSION>(row * down),
                                    static_cast<JDIMENSION>(down), TRUE);
      for (int i = 0; i < down; ++i) blocks[c][static_cast<std::size_t>(i)] = of_component[i][0];
    }
    s.good = scan.next_row(first, last, blocks);
  }
  if (s.top + s.height == static_cast<int>(s.whole->image_height)) s.good = s.good && scan.marker_follows();
}

void BaselineJpeg::State::read_rows(State& s) {
  jpeg_decompress_struct& d = s.libjpeg.info;
  jpeg_start_output(&d, 1);
  read_jpeg_rows(d, s.last_row, s.pixels.data());
  jpeg_abort_decompress(&d);
}

BaselineJpeg::BaselineJpeg() : state_(std::make_unique<State>()) {}
BaselineJpeg::~BaselineJpeg() = default;

const std::uint8_t* BaselineJpeg::decode(const jpeg_decompress_struct& whole, int eighths, J_COLOR_SPACE colors,
                                         ScaledPart& part) {
  State& s = *state_;
  s.whole = &whole;
  s.eighths = eighths;
  s.colors = colors;
  if (!s.prepare()) return nullptr;
  s.place(part);
  const std::int64_t bytes = std::int64_t{s.width} * s.height * whole.num_components * std::int64_t{sizeof(JCOEF)};
  if (bytes > kMaxCoefficientBytes) return nullptr;
  s.write_file();
  try {
    s.libjpeg.guarded(State::open, s);
    s.libjpeg.guarded(State::read_coefficients, s);
    jpeg_decompress_struct& d = s.libjpeg.info;
    if (!s.good) {
      jpeg_abort_decompress(&d);  // frees the coefficients
      return nullptr;
    }
    s.pixels.resize(static_cast<std::size_t>(s.last_row) * jpeg_row_bytes(d));
    const auto columns = static_cast<int>(d.output_width);
    const std::size_t unwanted = static_cast<std::size_t>(s.last_row - part.rows) * jpeg_row_bytes(d);
    s.libjpeg.guarded(State::read_rows, s);
    part.first_column = s.left * eighths / DCTSIZE;
    part.columns = columns;
    return s.pixels.data() + unwanted;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace convoy
