// SPDX-License-Identifier: Apache-2.0
//
// Random choices: pure functions of seed, epoch and index, with torchvision's semantics (tests/interop compares their
// distribution with torchvision itself). Boxes of evaluation against numbers worked out by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/data/augment.h"
#include "io/data/augmented_dataset.h"
#include "io/data/in_memory_dataset.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;

namespace {

// 6 images of 4 x 5 pixels of 3 channels; every value is different, and not 0.
std::unique_ptr<InMemoryDataset> counting_images(std::int64_t channels = 3) {
  InMemoryDataset::Content content;
  content.source = "counting";
  content.sample = {channels, 4, 5};
  content.pixels.resize(static_cast<std::size_t>(6 * 20 * channels));
  for (std::size_t i = 0; i < content.pixels.size(); ++i) content.pixels[i] = static_cast<std::uint8_t>(1 + i % 250);
  content.labels = {0, 1, 2, 0, 1, 2};
  return std::make_unique<InMemoryDataset>(std::move(content));
}

std::vector<std::uint8_t> sample(const Dataset& data, const SampleId& id) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(data.sample_shape().size()));
  std::int64_t label = -1;
  data.read(id, pixels.data(), &label, nullptr);
  CHECK(label == id.index % 3);
  return pixels;
}

}  // namespace

TEST_CASE("random crops lie in the image, within the asked area and ratio") {
  Augmentation wanted;
  double areas = 0;
  for (int i = 0; i < 2000; ++i) {
    SampleRandom random(5, {i, 1});
    const PixelBox box = random_resized_crop(500, 375, wanted, random);
    CHECK(box.left >= 0);
    CHECK(box.top >= 0);
    CHECK(box.left + box.width <= 500);
    CHECK(box.top + box.height <= 375);
    const double area = box.width * box.height / (500.0 * 375), ratio = double(box.width) / box.height;
    CHECK(area > 0.078);  // the two sides are rounded
    CHECK(ratio > 0.73);
    CHECK(ratio < 1.37);
    areas += area / 2000;
  }
  // Uniform on 0.08..1, less what does not fit: above 0.5625 a share of ln(1 / area) / (2 ln(4 / 3)) does. Integrated,
  // the mean is 0.432; its standard error here is 0.005.
  CHECK(areas == doctest::Approx(0.432).epsilon(0.03));
}

// The largest distance of the values' distribution from that with this distribution function (Kolmogorov-Smirnov).
template <class Distribution>
double distance_from(std::vector<double> values, Distribution&& distribution) {
  std::sort(values.begin(), values.end());
  double largest = 0;
  const auto count = static_cast<double>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double wanted = distribution(values[i]), below = static_cast<double>(i) / count;
    largest = std::max({largest, std::abs(wanted - below), std::abs(wanted - below - 1 / count)});
  }
  return largest;
}

constexpr int kDraws = 4000;
const double kFar = 1.95 / std::sqrt(kDraws);  // one in a thousand samples is farther from its own distribution

TEST_CASE("erased boxes have torchvision's distribution") {
  Augmentation wanted;
  wanted.erase_probability = 0.4;
  wanted.erase_ratio = {0.5, 2.0};  // every box fits
  std::vector<double> areas, ratios, lefts, tops;
  for (int i = 0; i < kDraws; ++i) {
    SampleRandom random(5, {i, 1}, "erase");
    const PixelBox box = random_erasing(1000, 800, wanted, random);
    if (box.width == 0) continue;
    CHECK(box.left + box.width <= 1000);
    CHECK(box.top + box.height <= 800);
    areas.push_back(box.width * box.height / 800000.0);
    ratios.push_back(std::log2(double(box.height) / box.width));
    lefts.push_back(box.left / (1001.0 - box.width));
    tops.push_back(box.top / (801.0 - box.height));
  }
  const auto erased = static_cast<double>(areas.size());
  CHECK(erased / kDraws == doctest::Approx(0.4).epsilon(0.08));  // four standard errors
  const double far = 1.95 / std::sqrt(erased) + 0.01;            // sides and places are whole pixels
  CHECK(distance_from(areas, [](double x) { return (x - 0.02) / 0.31; }) < far);
  CHECK(distance_from(ratios, [](double x) { return (x + 1) / 2; }) < far);
  CHECK(distance_from(lefts, [](double x) { return x; }) < far);
  CHECK(distance_from(tops, [](double x) { return x; }) < far);
  wanted.erase_probability = 1;
  wanted.erase_area = {1.0, 1.0};  // no box is smaller than the image
  SampleRandom random(1, 0, "erase");
  CHECK(random_erasing(8, 8, wanted, random) == PixelBox{0, 0, 0, 0});
}

TEST_CASE("the shares of mixed images have the beta distribution") {
  const auto shares = [](double alpha) {
    Augmentation wanted;
    wanted.mixup = true;
    wanted.mixup_alpha = alpha;
    std::vector<double> values;
    for (int i = 0; i < kDraws; ++i) {
      const Mixing mixing = random_mixing(20, 10, wanted, 5, 2, i);
      CHECK(mixing.box == std::array<std::int64_t, 4>{0, 0, 20, 10});
      CHECK(mixing.labels == mixing.pixels);
      CHECK(mixing.pixels[0] + mixing.pixels[1] == doctest::Approx(1).epsilon(1e-6));
      values.push_back(static_cast<double>(mixing.pixels[0]));
    }
    return values;
  };
  CHECK(distance_from(shares(1), [](double x) { return x; }) < kFar);
  CHECK(distance_from(shares(0.5), [](double x) { return std::asin(std::sqrt(x)) / std::asin(1.0); }) < kFar);
  CHECK(distance_from(shares(2), [](double x) { return x * x * (3 - 2 * x); }) < kFar);
  for (const double alpha : {0.2, 1e-4, 1e4}) {
    double mean = 0, variance = 0;
    for (const double x : shares(alpha)) {
      mean += x / kDraws;
      variance += (x - 0.5) * (x - 0.5) / kDraws;
    }
    CHECK(mean == doctest::Approx(0.5).epsilon(0.07));  // four standard errors
    CHECK(variance == doctest::Approx(0.25 / (2 * alpha + 1)).epsilon(0.1));
  }
}

TEST_CASE("CutMix boxes and their shares of the labels") {
  Augmentation wanted;
  wanted.cutmix = true;
  std::vector<double> areas;
  for (int i = 0; i < kDraws; ++i) {
    const Mixing mixing = random_mixing(400, 300, wanted, 5, 2, i);
    const auto [left, top, width, height] = mixing.box;
    CHECK(left >= 0);
    CHECK(top >= 0);
    CHECK(left + width <= 400);
    CHECK(top + height <= 300);
    CHECK(mixing.pixels == std::array<float, 2>{0, 1});
    const double share = static_cast<double>(width * height) / 120000;
    CHECK(mixing.labels[1] == doctest::Approx(share).epsilon(1e-6));
    areas.push_back(share);
  }
  // A box around a point of the image with sides of r = sqrt(1 - lambda) of the image's: clipped, a side is r - r^2 / 4
  // on average, so the mean area is that of r^2 (1 - r / 4)^2 with r^2 uniform: 1/2 - 1/2 * 4/10 + 1/16 * 1/3.
  const double mean = std::accumulate(areas.begin(), areas.end(), 0.0) / kDraws;
  CHECK(mean ==
        doctest::Approx(0.5 - 0.2 + 1.0 / 48).epsilon(0.05));  // four standard errors, and a half for whole pixels
  wanted.mixup = true;                                         // one of the two, as often
  int cut = 0;
  for (int i = 0; i < kDraws; ++i) cut += random_mixing(40, 30, wanted, 5, 2, i).pixels[0] == 0 ? 1 : 0;
  CHECK(cut / double{kDraws} == doctest::Approx(0.5).epsilon(0.07));
}

TEST_CASE("an image that no random crop fits gives its centre") {
  Augmentation wanted;
  wanted.area = {1.0, 1.0};
  SampleRandom random(1, 0);
  CHECK(random_resized_crop(1000, 10, wanted, random) == PixelBox{493, 0, 13, 10});  // round(10 * 4 / 3)
  CHECK(random_resized_crop(9, 1000, wanted, random) == PixelBox{0, 494, 9, 12});    // round(9 / 0.75)
  CHECK(random_resized_crop(1, 1, wanted, random) == PixelBox{0, 0, 1, 1});
}

TEST_CASE("choices are a function of seed, epoch and index") {
  const auto draws = [](std::uint64_t seed, const SampleId& id) {
    SampleRandom random(seed, id);
    return std::vector<double>{random.uniform(0, 1), random.uniform(0, 1), double(random.below(1000000))};
  };
  CHECK(draws(1, {2, 3}) == draws(1, {2, 3}));
  std::set<std::vector<double>> all;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::int64_t index = 0; index < 10; ++index) {
      for (std::int64_t epoch = 0; epoch < 10; ++epoch) all.insert(draws(seed, {index, epoch}));
    }
  }
  CHECK(all.size() == 300);
}

TEST_CASE("colour jitter: no strength changes nothing, and factors stay within theirs") {
  std::vector<std::uint8_t> image(30 * 3);
  std::iota(image.begin(), image.end(), std::uint8_t{60});
  auto copy = image;
  SampleRandom random(1, 1);
  jitter_colors(copy.data(), 30, 3, {0, 0, 0}, random);
  CHECK(copy == image);
  double least = 9, most = 0;
  for (int i = 0; i < 300; ++i) {
    copy = image;
    SampleRandom own(1, i);
    jitter_colors(copy.data(), 30, 3, {0.4, 0, 0}, own);
    const double factor = copy[89] / double(image[89]);
    CHECK(std::abs(copy[0] - std::floor(image[0] * factor)) <= 1);  // one factor for all, cut off to whole numbers
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  CHECK(least > 0.58);
  CHECK(least < 0.65);
  CHECK(most < 1.41);
  CHECK(most > 1.35);
  // Contrast and saturation have fixed points: the mean grey, and grey pixels.
  std::vector<std::uint8_t> grey(30 * 3, 77);
  for (int i = 0; i < 20; ++i) {
    SampleRandom own(2, i);
    jitter_colors(grey.data(), 30, 3, {0, 0.9, 0.9}, own);
  }
  CHECK(std::count(grey.begin(), grey.end(), 77) == 90);
}

TEST_CASE("saturation is Pillow's blend with the grey of each pixel, in every bit") {
  constexpr int kPixels = 1003;  // no whole number of vectors
  std::vector<std::uint8_t> image(3 * kPixels);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * i * 7 + i / 5);
  for (int i = 0; i < 20; ++i) {
    auto copy = image;
    SampleRandom random(4, i), same(4, i);
    jitter_colors(copy.data(), kPixels, 3, {0, 0, 0.9}, random);
    for (const int count : {3, 2}) static_cast<void>(same.below(count));  // the order
    for (int unused = 0; unused < 2; ++unused) static_cast<void>(same.uniform(1, 1));
    const auto factor = static_cast<float>(same.uniform(1 - 0.9, 1 + 0.9));
    for (std::size_t at = 0; at < image.size(); ++at) {
      const std::uint8_t* rgb = image.data() + at / 3 * 3;
      const int grey = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
      const float product = factor * static_cast<float>(image[at] - grey);
      const double mixed = static_cast<float>(double{product} + grey);  // each operation rounded to float once
      REQUIRE(copy[at] == static_cast<std::uint8_t>(std::clamp(mixed, 0.0, 255.0)));
    }
  }
}

TEST_CASE("small images: a crop with a black border and a flip") {
  Augmentation wanted;
  wanted.crop = wanted.flip = true;
  wanted.padding = 2;
  const auto plain = counting_images();
  const AugmentedDataset data(counting_images(), wanted, 3);
  std::set<std::string> possible, seen;  // their bytes
  const auto pixels = sample(*plain, 1);
  const auto at = [&](int x, int y, std::size_t c) {
    const bool inside = x >= 0 && x < 5 && y >= 0 && y < 4;
    return inside ? pixels[static_cast<std::size_t>(y * 5 + x) * 3 + c] : std::uint8_t{0};
  };
  for (int move = 0; move < 50; ++move) {  // 5 x 5 places, and their mirror images
    std::string image;
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 5; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          image += static_cast<char>(at((move < 25 ? x : 4 - x) + move % 5 - 2, y + move / 5 % 5 - 2, c));
        }
      }
    }
    possible.insert(image);
  }
  for (std::int64_t epoch = 0; epoch < 600; ++epoch) {
    const auto image = sample(data, {1, epoch});
    CHECK(image == sample(data, {1, epoch}));
    const std::string bytes(image.begin(), image.end());
    CHECK(possible.count(bytes) == 1);
    seen.insert(bytes);
  }
  CHECK(seen == possible);  // each of 50 in 600 draws: missing one has a chance of 3e-4, and the seed is fixed
}

TEST_CASE("a moved and mirrored image, pixel by pixel, at every width, border and number of channels") {
  for (const int channels : {1, 2, 3, 4}) {
    for (int width = 1; width <= 12; ++width) {
      const int height = 3, padding = 5;
      std::vector<std::uint8_t> image(static_cast<std::size_t>(height * width * channels));
      std::iota(image.begin(), image.end(), std::uint8_t{1});
      for (int move = 0; move < 2 * 11 * 11; ++move) {
        const bool flip = move % 2 == 1;
        const int left = move / 2 % 11, top = move / 22;
        std::vector<std::uint8_t> wanted, out(image.size() + 8, 250);
        for (int y = top - padding; y < top - padding + height; ++y) {
          for (int x = 0; x < width; ++x) {
            const int column = (flip ? width - 1 - x : x) + left - padding;
            const bool inside = y >= 0 && y < height && column >= 0 && column < width;
            for (int c = 0; c < channels; ++c) {
              wanted.push_back(inside ? image[static_cast<std::size_t>((y * width + column) * channels + c)]
                                      : std::uint8_t{0});
            }
          }
        }
        wanted.resize(out.size(), 250);  // nothing is written behind the image
        shift_image(image.data(), height, width, channels, padding, left, top, flip, out.data());
        REQUIRE(out == wanted);
      }
    }
  }
}

TEST_CASE("augmentation of what is no image is refused") {
  ExitCode code{};
  Augmentation wanted;
  wanted.jitter = true;
  const std::string error = error_of([&] { AugmentedDataset(counting_images(2), wanted, 1); }, &code);
  CHECK(code == ExitCode::kUsage);
  CHECK(contains(error, "data.augment"));
  CHECK(contains(error, "these have 2"));
}
