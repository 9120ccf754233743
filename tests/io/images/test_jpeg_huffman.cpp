// SPDX-License-Identifier: Apache-2.0
//
// Entropy decoding of baseline scans against the coefficients that libjpeg reads.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "io/images/jpeg_huffman.h"
#include "layers/base/random.h"
#include "tests/io/images/jpeg_files.h"

using namespace convoy;
using namespace convoy::test;

namespace {

using Blocks = std::vector<std::int16_t>;  // of a component: [rows of blocks, columns, 64], whole MCUs

// A file with libjpeg's view of it, whose errors end the test.
struct OpenJpeg {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  explicit OpenJpeg(const std::string& bytes) {
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info, TRUE);
  }
  ~OpenJpeg() { jpeg_destroy_decompress(&info); }
  OpenJpeg(const OpenJpeg&) = delete;
  OpenJpeg& operator=(const OpenJpeg&) = delete;

  [[nodiscard]] int mcu(int factor) const { return info.num_components == 1 ? 1 : factor; }
  [[nodiscard]] int mcus_per_row() const { return count(info.image_width, mcu(info.max_h_samp_factor)); }
  [[nodiscard]] int mcu_rows() const { return count(info.image_height, mcu(info.max_v_samp_factor)); }

 private:
  static int count(JDIMENSION pixels, int blocks) { return (static_cast<int>(pixels) + 8 * blocks - 1) / (8 * blocks); }
};

// By libjpeg; blocks that only fill up MCUs stay 0.
std::vector<Blocks> expected_blocks(const std::string& bytes, const std::vector<Blocks>& like) {
  OpenJpeg file(bytes);
  jpeg_decompress_struct& d = file.info;
  jvirt_barray_ptr* arrays = jpeg_read_coefficients(&d);
  std::vector<Blocks> all;
  for (int c = 0; c < d.num_components; ++c) {
    const jpeg_component_info& component = d.comp_info[c];
    const auto i = static_cast<std::size_t>(c);
    Blocks blocks(like[i].size());
    const std::size_t columns = static_cast<std::size_t>(file.mcus_per_row() * file.mcu(component.h_samp_factor));
    for (JDIMENSION row = 0; row < component.height_in_blocks; ++row) {
      const JBLOCKARRAY from = d.mem->access_virt_barray(reinterpret_cast<j_common_ptr>(&d), arrays[c], row, 1, FALSE);
      std::memcpy(blocks.data() + row * columns * kBlockSize, from[0], component.width_in_blocks * sizeof(JBLOCK));
    }
    all.push_back(blocks);
  }
  return all;
}

struct Scan {
  bool good = true;
  std::vector<Blocks> blocks;
};

// By BaselineScan: all of it, or the MCUs [first, last) of each row, the others staying 0.
Scan read_scan(const std::string& bytes, int first = 0, int last = 1 << 20) {
  OpenJpeg file(bytes);
  const jpeg_decompress_struct& d = file.info;
  std::array<HuffmanTable, 8> tables;
  std::vector<ScanComponent> components;
  Scan scan;
  for (int i = 0; i < d.num_components; ++i) {
    const jpeg_component_info& c = d.comp_info[i];
    const auto set = [](HuffmanTable& table, const JHUFF_TBL& codes, HuffmanTable::Kind kind) {
      REQUIRE(table.set(std::span<const std::uint8_t, 17>(codes.bits),
                        std::span<const std::uint8_t, 256>(codes.huffval), kind));
    };
    HuffmanTable& dc = tables[static_cast<std::size_t>(c.dc_tbl_no)];
    HuffmanTable& ac = tables[static_cast<std::size_t>(4 + c.ac_tbl_no)];
    set(dc, *d.dc_huff_tbl_ptrs[c.dc_tbl_no], HuffmanTable::Kind::kDc);
    set(ac, *d.ac_huff_tbl_ptrs[c.ac_tbl_no], HuffmanTable::Kind::kAc);
    components.push_back({file.mcu(c.h_samp_factor), file.mcu(c.v_samp_factor), &dc, &ac});
    const int count = file.mcus_per_row() * components.back().across * file.mcu_rows() * components.back().down;
    scan.blocks.emplace_back(static_cast<std::size_t>(count * kBlockSize));
  }
  // In memory of its own, of just its size: the sanitizers see what lies behind it.
  const std::vector<std::byte> rest = [&] {
    const auto source = std::as_bytes(std::span(d.src->next_input_byte, d.src->bytes_in_buffer));
    return std::vector<std::byte>(source.begin(), source.end());
  }();
  BaselineScan reader(rest, components, file.mcus_per_row(), static_cast<int>(d.restart_interval));
  last = std::min(last, file.mcus_per_row());
  for (int row = 0; row < file.mcu_rows() && scan.good; ++row) {
    McuRow place{};
    for (std::size_t c = 0; c < components.size(); ++c) {
      const int columns = file.mcus_per_row() * components[c].across;
      for (int down = 0; down < components[c].down; ++down) {
        const int block = (row * components[c].down + down) * columns + first * components[c].across;
        place[c][static_cast<std::size_t>(down)] = scan.blocks[c].data() + std::ptrdiff_t{block} * kBlockSize;
      }
    }
    scan.good = reader.next_row(first, last, place);
  }
  return scan;
}

int noise(int x, int y, int c) {
  return static_cast<int>(256 * random_uniform(3, static_cast<std::uint64_t>((y * 512 + x) * 4 + c)));
}
int ramp(int x, int y, int c) { return (x + 2 * y + 30 * c) % 256; }

// Blocks that only fill up MCUs count for nothing.
void keep_real_blocks(const std::string& bytes, std::vector<Blocks>& all) {
  OpenJpeg file(bytes);
  for (std::size_t c = 0; c < all.size(); ++c) {
    const jpeg_component_info& component = file.info.comp_info[c];
    const auto columns = static_cast<std::size_t>(file.mcus_per_row() * file.mcu(component.h_samp_factor));
    for (std::size_t i = 0; i < all[c].size() / kBlockSize; ++i) {
      if (i % columns < component.width_in_blocks && i / columns < component.height_in_blocks) continue;
      std::fill_n(all[c].begin() + static_cast<std::ptrdiff_t>(i * kBlockSize), kBlockSize, std::int16_t{0});
    }
  }
}

const std::vector<JpegStyle> kStyles{{.quality = 100},
                                     {.quality = 100, .sampling = 2},
                                     {.quality = 75, .sampling = 2},
                                     {.quality = 30, .sampling = 2, .restart_interval = 3},
                                     {.quality = 90, .sampling = 2, .sampling_rows = 1, .restart_interval = 1},
                                     {.quality = 95, .sampling = 1, .sampling_rows = 2, .optimized = true},
                                     {.quality = 5, .sampling = 4, .sampling_rows = 2},
                                     {.quality = 100, .sampling = 2, .optimized = true}};

}  // namespace

TEST_CASE("jpeg scans: the coefficients are libjpeg's") {
  for (const JpegStyle& style : kStyles) {
    for (const int channels : {1, 3}) {
      for (const auto& picture : {noise, ramp}) {
        CAPTURE(style.quality);
        CAPTURE(style.sampling);
        CAPTURE(channels);
        const std::string bytes = encode(draw(101, 77, channels, picture), 101, 77, channels, style);
        Scan scan = read_scan(bytes);
        CHECK(scan.good);
        keep_real_blocks(bytes, scan.blocks);
        CHECK(scan.blocks == expected_blocks(bytes, scan.blocks));
      }
    }
  }
}

TEST_CASE("jpeg scans: only the wanted MCUs are written") {
  for (const JpegStyle& style : kStyles) {
    const std::string bytes = encode(draw(101, 77, 3, noise), 101, 77, 3, style);
    Scan part = read_scan(bytes, 1, 3);
    CHECK(part.good);
    std::vector<Blocks> expected = read_scan(bytes).blocks;
    const OpenJpeg file(bytes);
    for (std::size_t c = 0; c < expected.size(); ++c) {
      const int across = file.info.comp_info[c].h_samp_factor, columns = file.mcus_per_row() * across;
      for (std::size_t i = 0; i < expected[c].size(); ++i) {
        const int column = static_cast<int>(i / kBlockSize) % columns;
        if (column < across || column >= 3 * across) expected[c][i] = 0;
      }
    }
    CHECK(part.blocks == expected);
  }
}

TEST_CASE("jpeg scans: one that ends early is refused, wherever it ends") {
  for (const int restart_interval : {0, 4}) {
    const std::string bytes =
        encode(draw(48, 40, 3, noise), 48, 40, 3, {.sampling = 2, .restart_interval = restart_interval});
    const std::size_t scan = bytes.find("\xFF\xDA") + 14;
    REQUIRE(read_scan(bytes).good);
    CHECK(read_scan(bytes.substr(0, bytes.size() - 2)).good);  // only the marker behind it is missing
    for (std::size_t size = scan; size < bytes.size() - 2; ++size) {
      CAPTURE(size);
      CHECK_FALSE(read_scan(bytes.substr(0, size)).good);
      CHECK_FALSE(read_scan(bytes.substr(0, size) + "\xFF\xD9").good);
    }
  }
}

TEST_CASE("jpeg scans: codes that are none") {
  std::array<std::uint8_t, 17> counts{};
  std::array<std::uint8_t, 256> symbols{};
  HuffmanTable table;
  const auto set = [&](HuffmanTable::Kind kind) { return table.set(counts, symbols, kind); };
  counts[1] = 2;
  CHECK(set(HuffmanTable::Kind::kDc));
  counts[2] = 1;  // nothing is left for two bits
  CHECK_FALSE(set(HuffmanTable::Kind::kDc));
  counts[1] = 1;
  CHECK(set(HuffmanTable::Kind::kDc));
  CHECK(table.look_up(std::uint64_t{0b10} << 62) != 0);
  CHECK(table.look_up(std::uint64_t{0b11} << 62) == 0);
  symbols[0] = 12;
  CHECK_FALSE(set(HuffmanTable::Kind::kDc));
  CHECK_FALSE(set(HuffmanTable::Kind::kDc));
  symbols[0] = 0xFB;
  CHECK_FALSE(set(HuffmanTable::Kind::kAc));
  symbols[0] = 0xFA;
  CHECK(set(HuffmanTable::Kind::kAc));
  counts = {};
  counts[16] = 255;
  counts[15] = 2;  // one more than there are symbols
  CHECK_FALSE(set(HuffmanTable::Kind::kAc));
}
