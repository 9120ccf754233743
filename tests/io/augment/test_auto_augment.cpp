// SPDX-License-Identifier: Apache-2.0
//
// The random choices of TrivialAugment and RandAugment: their distribution with fixed seeds. tests/interop compares
// magnitudes and pixels with torchvision's.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "io/augment/auto_augment.h"
#include "tests/io/augment/chi_square.h"

using namespace convoy;
using namespace convoy::test;

namespace {

constexpr int kSamples = 28000;

std::size_t place(ImageOperation operation) { return static_cast<std::size_t>(operation); }

}  // namespace

TEST_CASE("trivial: operations, magnitudes and signs are uniform") {
  std::vector<int> operations(kImageOperations.size()), bins(2 * kMagnitudes - 1), thresholds(kMagnitudes);
  for (int i = 0; i < kSamples; ++i) {
    SampleRandom random(5, {i, 2});
    const ImageChange change = trivial_change(random);
    ++operations[place(change.operation)];
    if (change.operation == ImageOperation::kRotate) {  // -135, -130.5, ..., 135 degrees
      ++bins[static_cast<std::size_t>(std::lround(change.magnitude / 4.5) + kMagnitudes - 1)];
    }
    if (change.operation == ImageOperation::kSolarize) {
      ++thresholds[static_cast<std::size_t>(std::lround(change.magnitude / 8.5))];
    }
  }
  CHECK(chi_square(operations) < chi_square_limit(operations.size()));
  CHECK(chi_square(thresholds) < chi_square_limit(thresholds.size()));
  bins[kMagnitudes - 1] /= 2;  // 0 has two signs
  CHECK(chi_square(bins) < chi_square_limit(bins.size()));
}

TEST_CASE("rand: pairs of operations and signs are uniform, the magnitude is the one asked for") {
  std::vector<int> pairs(kImageOperations.size() * kImageOperations.size()), signs(2);
  for (int i = 0; i < kSamples; ++i) {
    SampleRandom random(6, {i, 0});
    const std::vector<ImageChange> changes = rand_changes(2, 9, 331, 662, random);
    REQUIRE(changes.size() == 2);
    ++pairs[place(changes[0].operation) * kImageOperations.size() + place(changes[1].operation)];
    for (const ImageChange& change : changes) {
      const double wanted = rand_magnitude(change.operation, 9, 331, 662);
      REQUIRE(std::abs(change.magnitude) == wanted);
      if (change.operation == ImageOperation::kTranslateX) CHECK(wanted == 90);
      if (change.operation == ImageOperation::kTranslateY) ++signs[change.magnitude < 0 ? 1 : 0];
    }
  }
  CHECK(chi_square(pairs) < chi_square_limit(pairs.size()));
  CHECK(chi_square(signs) < chi_square_limit(2));
}

TEST_CASE("an operation without strength changes nothing") {
  std::vector<std::uint8_t> image(9 * 7 * 3);
  std::iota(image.begin(), image.end(), std::uint8_t{11});
  for (const auto operation :
       {ImageOperation::kIdentity, ImageOperation::kShearX, ImageOperation::kShearY, ImageOperation::kTranslateX,
        ImageOperation::kTranslateY, ImageOperation::kRotate, ImageOperation::kBrightness, ImageOperation::kColor,
        ImageOperation::kContrast, ImageOperation::kSharpness}) {
    auto copy = image;
    apply_change({operation, 0}, copy.data(), 9, 7, 3);
    CHECK_MESSAGE(copy == image, kImageOperations[place(operation)]);
  }
}
