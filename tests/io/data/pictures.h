// SPDX-License-Identifier: Apache-2.0
//
// Folders of small pictures, and the samples that come of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"
#include "tests/io/images/jpeg_files.h"
#include "tests/io/temporary_folder.h"

namespace convoy::test {

// A picture of its own for each number.
inline std::string picture(int number, int width = 60, int height = 50) {
  const auto pixel = [&](int x, int y, int c) {
    return static_cast<int>(128 + 90 * std::sin(0.1 * x * (1 + number % 3) + 0.07 * y + number + c));
  };
  return encode(draw(width, height, 3, pixel), width, height, 3, {.sampling = 1 + number % 2});
}

inline void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_text(path, bytes);
}

// Three classes of 8 pictures.
inline void fill(const TemporaryFolder& folder) {
  for (int i = 0; i < 24; ++i) put(folder / fmt::format("{}/{:02}.jpg", "abc"[i / 8], i), picture(i));
}

inline ImageDataset dataset(const std::string& folder, const ImageDataset::Options& options) {
  return {std::make_unique<ImageFolder>(folder), folder, options};
}

inline ImageDataset::Options small_options() {
  ImageDataset::Options options;
  options.size = 24;
  options.resize = 28;
  options.seed = 9;
  options.max_broken = 0.2;
  return options;
}

inline std::vector<std::uint8_t> sample(const ImageDataset& data, const SampleId& id) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.sample_shape_in(id.epoch).size()));
  data.read(id, pixels.data(), nullptr, nullptr);
  return pixels;
}

}  // namespace convoy::test
