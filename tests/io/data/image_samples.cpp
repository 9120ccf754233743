// SPDX-License-Identifier: Apache-2.0
//
// What the tests against torchvision read: the order of a folder, samples as raw bytes, boxes of random crops.
// Invariant: bytes go to the standard output, [samples, size, size, 3], and nothing else does. Usage: image_samples
// list FOLDER | eval FOLDER SIZE RESIZE | train FOLDER SIZE SEED EPOCH | boxes WIDTH HEIGHT COUNT
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "io/data/image_dataset.h"
#include "io/data/image_folder.h"

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

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const auto number = [&](std::size_t i) { return std::stoi(words.at(i)); };
  try {
    const std::string& what = words.at(1);
    ImageDataset::Options options;
    if (what == "list") list(words.at(2));
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
