// SPDX-License-Identifier: Apache-2.0
//
// What the tests against torchvision read: the order of a folder, samples as raw bytes, boxes of random crops, changed
// images. Invariant: bytes go to the standard output, [samples, size, size, 3], and nothing else does. Usage:
// image_samples list FOLDER | eval FOLDER SIZE RESIZE | train FOLDER SIZE SEED EPOCH | boxes WIDTH HEIGHT COUNT
// | changes | jitter COUNT BRIGHTNESS CONTRAST SATURATION HUE. The last two read images from the standard input, each
// behind a line "NAME VALUE HEIGHT WIDTH CHANNELS"; changes writes the pixels after the change of that name, jitter for
// each of COUNT samples a line with the number of operations, their order and factors, and the pixels.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "io/augment/color_jitter.h"
#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"
#include "io/images/color_operations.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

void list(const std::string& folder) {
  const ImageFolder images(folder);
  for (std::int64_t i = 0; i < images.size(); ++i) {
    std::printf("%s\t%lld\n", images.name(i).c_str(), static_cast<long long>(images.label(i)));
  }
}

void samples(const std::string& folder, const ImageDataset::Options& options, std::int64_t epoch) {
  const ImageDataset data(std::make_unique<ImageFolder>(folder), folder, options);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.sample_shape().size()));
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read({i, epoch}, pixels.data(), nullptr, nullptr);
    std::fwrite(pixels.data(), 1, pixels.size(), stdout);
  }
}

void boxes(int width, int height, int count) {
  for (int i = 0; i < count; ++i) {
    SampleRandom random(1, i);
    const PixelBox box = random_resized_crop(width, height, Augmentation{}, random);
    std::printf("%d %d %d %d\n", box.top, box.left, box.height, box.width);
  }
}

struct Image {
  std::string name;
  double value = 0;
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] std::int64_t count() const { return std::int64_t{height} * width; }
};

bool read_image(Image& image) {
  std::string line;
  if (!std::getline(std::cin, line)) return false;
  std::istringstream words(line);
  words >> image.name >> image.value >> image.height >> image.width >> image.channels;
  image.pixels.resize(static_cast<std::size_t>(image.count() * image.channels));
  std::cin.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
  return true;
}

void write(const Image& image) { std::fwrite(image.pixels.data(), 1, image.pixels.size(), stdout); }

void changes() {
  const std::map<std::string, std::function<void(Image&)>> by_name{
      {"hue", [](Image& i) { turn_hue(i.pixels.data(), i.count(), i.channels, i.value); }},
  };
  for (Image image; read_image(image);) {
    const auto found = by_name.find(image.name);
    if (found == by_name.end()) fail("no change is called {}", image.name);
    found->second(image);
    write(image);
  }
}

void jitter(int count, const JitterStrength& strength) {
  Image image;
  read_image(image);
  for (int i = 0; i < count; ++i) {
    SampleRandom random(1, i), same(1, i);
    const ColorChanges changes = color_changes(strength, same);
    std::printf("%d", changes.count);
    for (const auto what : changes.order) std::printf(" %d", static_cast<int>(what));
    for (const double factor : changes.factors) std::printf(" %.17g", factor);
    std::printf("\n");
    Image copy = image;
    jitter_colors(copy.pixels.data(), copy.count(), copy.channels, strength, random);
    write(copy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const auto number = [&](std::size_t i) { return std::stoi(words.at(i)); };
  const auto real = [&](std::size_t i) { return std::stod(words.at(i)); };
  try {
    const std::string& what = words.at(1);
    ImageDataset::Options options;
    if (what == "list") list(words.at(2));
    if (what == "changes") changes();
    if (what == "jitter") jitter(number(2), {{real(3), real(4), real(5)}, real(6)});
    if (what == "boxes") boxes(number(2), number(3), number(4));
    if (what == "eval") {
      options.size = number(3);
      options.resize = number(4);
      samples(words.at(2), options, 0);
    }
    if (what == "train") {
      options.size = number(3);
      options.augmentation.crop = options.augmentation.flip = true;
      options.seed = static_cast<std::uint64_t>(number(4));
      samples(words.at(2), options, number(5));
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "image_samples: %s\n", error.what());
    return 1;
  }
}
