// SPDX-License-Identifier: Apache-2.0
//
// What the tests against torchvision read: the order of a folder, samples as raw bytes, boxes of random crops, changed
// images. Invariant: bytes go to the standard output, [samples, size, size, 3], and nothing else does. Usage:
// image_samples list FOLDER | eval FOLDER SIZE RESIZE | train FOLDER SIZE SEED EPOCH | boxes WIDTH HEIGHT COUNT
// | magnitudes HEIGHT WIDTH | changes | jitter COUNT BRIGHTNESS CONTRAST SATURATION HUE | trivial COUNT
// | rand COUNT OPERATIONS MAGNITUDE. The last four read images from the standard input, each behind a line "NAME VALUE
// HEIGHT WIDTH CHANNELS"; changes writes the pixels after the change of that name, the others for each of COUNT samples
// a line with the choices, and the pixels.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "io/augment/auto_augment.h"
#include "io/augment/color_jitter.h"
#include "io/data/augment.h"
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

void apply(const ImageChange& change, Image& image) {
  apply_change(change, image.pixels.data(), image.height, image.width, image.channels);
}

void changes() {
  for (Image image; read_image(image);) {
    const auto found = std::find(kImageOperations.begin(), kImageOperations.end(), image.name);
    if (image.name == "hue") {
      turn_hue(image.pixels.data(), image.count(), image.channels, image.value);
    } else if (found != kImageOperations.end()) {
      apply({static_cast<ImageOperation>(found - kImageOperations.begin()), image.value}, image);
    } else {
      fail("no change is called {}", image.name);
    }
    write(image);
  }
}

void magnitudes(int height, int width) {
  for (std::size_t i = 0; i < kImageOperations.size(); ++i) {
    const auto operation = static_cast<ImageOperation>(i);
    for (int bin = 0; bin < kMagnitudes; ++bin) {
      std::printf("%s %d %.17g %.17g\n", std::string(kImageOperations[i]).c_str(), bin,
                  trivial_magnitude(operation, bin), rand_magnitude(operation, bin, height, width));
    }
  }
}

void policy(int count, const Augmentation& wanted) {
  Image image;
  read_image(image);
  for (int i = 0; i < count; ++i) {
    SampleRandom random(1, i), same(1, i);
    const std::vector<ImageChange> chosen =
        wanted.trivial ? std::vector{trivial_change(same)}
                       : rand_changes(wanted.rand_operations, wanted.rand_magnitude, image.height, image.width, same);
    for (const ImageChange& change : chosen) {
      std::printf("%s %.17g ", std::string(kImageOperations[static_cast<std::size_t>(change.operation)]).c_str(),
                  change.magnitude);
    }
    std::printf("\n");
    Image copy = image;
    change_image(copy.pixels.data(), copy.height, copy.width, copy.channels, wanted, random);
    write(copy);
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
    if (what == "magnitudes") magnitudes(number(2), number(3));
    Augmentation wanted;
    wanted.trivial = what == "trivial";
    wanted.rand = what == "rand";
    if (wanted.rand) {
      wanted.rand_operations = number(3);
      wanted.rand_magnitude = number(4);
    }
    if (wanted.trivial || wanted.rand) policy(number(2), wanted);
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
