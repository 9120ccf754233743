// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/hdf5_jpegs.h"
#include "io/files/crc32c.h"
#include "io/hdf5/checksum_trailer.h"
#include "io/images/jpeg_encode.h"
#include "io/pack/data_file.h"
#include "io/pack/pack_journal.h"
#include "io/pack/pack_plan.h"
#include "io/pack/pixel_statistics.h"
#include "tests/io/images/jpeg_files.h"
#include "tests/io/temporary_folder.h"

#include <fcntl.h>
#include <unistd.h>

using namespace convoy;
using namespace convoy::test;

TEST_CASE("a JPEG that is encoded is libjpeg's own") {
  for (const int channels : {1, 3}) {
    const auto pixels = draw(21, 13, channels, [](int x, int y, int c) { return 10 * x + 3 * y + 40 * c; });
    std::vector<std::byte> bytes(2);
    append_jpeg(pixels.data(), 21, 13, channels, 80, bytes);
    JpegStyle style;
    style.quality = 80;
    style.sampling = 2;
    const std::string expected = encode(pixels, 21, 13, channels, style);
    REQUIRE(bytes.size() == 2 + expected.size());
    CHECK(std::memcmp(bytes.data() + 2, expected.data(), expected.size()) == 0);
  }
}

TEST_CASE("statistics of pixels are those of all values together, however they are grouped") {
  const int channels = 3;
  std::vector<std::uint8_t> bytes(3 * 700);
  std::vector<std::uint16_t> words(3 * 700);
  std::vector<float> floats(3 * 700);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    words[i] = static_cast<std::uint16_t>(i * i * 31 + 17 * i);
    bytes[i] = static_cast<std::uint8_t>(words[i] >> 3);
    floats[i] = 1000 + static_cast<float>(words[i]) / 4096;  // far from 0: sums of squares alone would lose digits
  }
  const auto check = [&](const auto& values, double largest, PixelType type) {
    const std::span all = std::as_bytes(std::span(values));
    const std::size_t pixel = channels * sizeof values[0];
    PixelStatistics whole, parts, block;
    whole.add(all, channels, type);
    for (std::size_t first = 0, size = 1; first < 700;
         first += size, size = std::min<std::size_t>(2 * size, 700 - first)) {
      block = {};
      block.add(all.subspan(first * pixel, size * pixel), channels, type);
      parts.add(block);
    }
    CHECK(whole.pixels == 700);
    CHECK(parts.pixels == 700);
    for (std::size_t c = 0; c < channels; ++c) {
      long double mean = 0, squares = 0;
      for (std::size_t i = c; i < values.size(); i += channels) mean += values[i] / largest / 700;
      for (std::size_t i = c; i < values.size(); i += channels) {
        squares += (values[i] / largest - mean) * (values[i] / largest - mean);
      }
      for (const PixelStatistics* found : {&whole, &parts}) {  // 1e-12: some hundred roundings of float64
        CHECK(found->mean[c] == doctest::Approx(static_cast<double>(mean)).epsilon(1e-12));
        CHECK(found->deviation()[c] == doctest::Approx(static_cast<double>(std::sqrt(squares / 700))).epsilon(1e-12));
      }
    }
  };
  check(bytes, 255, PixelType::kUint8);
  check(words, 65535, PixelType::kUint16);
  check(floats, 1, PixelType::kFloat32);
  PixelStatistics constant;
  const std::vector<std::uint8_t> sevens(333, 7);
  constant.add(std::as_bytes(std::span(sevens)), 1, PixelType::kUint8);
  CHECK(constant.deviation() == std::vector<double>{0});
  floats[5] = NAN;
  CHECK(contains(error_of([&] { constant.add(std::as_bytes(std::span(floats)), 1, PixelType::kFloat32); }),
                 "value 5 of its pixels is nan"));
  CHECK(normalisation_lines({0.5, 1, 1e-7}, {0.25, 2, 1.0 / 3}) ==
        "mean = [0.5, 1.0, 1e-07]\nstd = [0.25, 2.0, 0.333333333]\n");
}

TEST_CASE("a split takes its share of each class, whatever the seed") {
  std::vector<std::int64_t> labels(100, 0);
  std::fill(labels.begin() + 70, labels.end(), 1);
  labels.back() = 2;
  for (const std::uint64_t seed : {0, 1, 2}) {
    const std::vector<bool> held_out = held_out_samples(labels, 3, 0.1, seed);
    std::vector<int> counts(3);
    for (std::size_t i = 0; i < labels.size(); ++i) counts[static_cast<std::size_t>(labels[i])] += held_out[i] ? 1 : 0;
    CHECK(counts == std::vector<int>{7, 3, 0});  // round(2.9); the only one of its class is for training
    CHECK(held_out == held_out_samples(labels, 3, 0.1, seed));
  }
  CHECK(held_out_samples(labels, 3, 0.1, 1) != held_out_samples(labels, 3, 0.1, 2));
  const std::vector<bool> most = held_out_samples({0, 0, 0, 1, 1}, 2, 0.99, 0);
  CHECK(std::count(most.begin(), most.end(), false) == 2);  // one of each class stays
}

TEST_CASE("a data file from its frame and samples, in two groups, with many classes") {
  const TemporaryFolder folder;
  DataFileFrame frame;
  frame.class_names.reserve(5000);
  for (int i = 0; i < 5000; ++i) frame.class_names.push_back(fmt::format("class {}", i));
  frame.groups = {{"/train", {0, 3, 4}, {4999, 0}, {crc32c("abc"), crc32c("d")}},
                  {"/validation", {0, 2}, {7}, {crc32c("ef")}}};
  const std::string samples = "abcdef", path = folder / "out.h5";
  DataFileFrame small = frame;
  for (auto& group : small.groups) {
    group.offsets = {0, 1};
    group.labels = {0};
    group.checksums = {0};
  }
  const std::int64_t start = FrameFile(folder / "small", small).start();
  const FrameFile file(folder / "frame", frame);
  CHECK(file.start() == start);
  CHECK(std::filesystem::is_empty(folder.path()));  // a kill leaves nothing
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT, 0644);
  REQUIRE(::pwrite(descriptor, samples.data(), samples.size(), start) == 6);
  file.complete(descriptor, path);
  ::close(descriptor);
  CHECK(check_trailer(path).trailer == Trailer::kHolds);
  const Hdf5Jpegs train(path + ":/train", true), validation(path + ":/validation", true);
  const auto text = [](const Hdf5Jpegs& images, std::int64_t index) {
    std::vector<std::byte> bytes;
    images.read(index, bytes);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CHECK(train.size() == 2);
  CHECK(text(train, 0) == "abc");
  CHECK(text(train, 1) == "d");
  CHECK(train.label(0) == 4999);
  CHECK(train.class_names() == frame.class_names);
  CHECK(validation.size() == 1);
  CHECK(text(validation, 0) == "ef");
  CHECK(validation.label(0) == 7);
}

TEST_CASE("the checksum of two pieces is joined from those of each") {
  std::string text(5000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + (i >> 5));
  const std::uint32_t whole = crc32c(text);
  for (const std::size_t cut : {0, 1, 2, 7, 8, 63, 64, 1000, 4095, 4096, 4999, 5000}) {
    const std::string_view first = std::string_view(text).substr(0, cut), second = std::string_view(text).substr(cut);
    CHECK(crc32c_joined(crc32c(first), crc32c(second), second.size()) == whole);
  }
  const std::string zeros(std::size_t{5} << 20, '\0');
  CHECK(crc32c_joined(whole, crc32c(zeros), zeros.size()) == crc32c(text + zeros));
}

TEST_CASE("a journal keeps whole blocks, of the same packing only") {
  const TemporaryFolder folder;
  const std::string path = folder / "journal";
  {
    PackJournal journal(path, 1);
    CHECK(journal.blocks().empty());
    journal.append({{{5, -1, 0}, {1, 0, 4294967295U}, {"x.jpg: broken"}}, {{9}, {7}, {}}});
    CHECK(contains(error_of([&] { const PackJournal other(path, 1); }), "another process"));
  }
  write_text(path, read_text(path) + "{\"sizes\":[1,2");  // cut by a kill
  for (int time = 0; time < 2; ++time) {
    const PackJournal journal(path, 1);
    REQUIRE(journal.blocks().size() == 2);
    CHECK(journal.blocks()[0].sizes == std::vector<std::int64_t>{5, -1, 0});
    CHECK(journal.blocks()[0].bytes() == 5);
    CHECK(journal.blocks()[0].checksums == std::vector<std::uint32_t>{1, 0, 4294967295U});
    CHECK(journal.blocks()[0].broken == std::vector<std::string>{"x.jpg: broken"});
    CHECK(!journal.differs());
  }
  const PackJournal other(path, 2);
  CHECK(other.differs());
  CHECK(other.blocks().empty());
}
