// SPDX-License-Identifier: Apache-2.0
//
// torchvision 0.14: transforms/autoaugment.py.
#include "io/augment/auto_augment.h"

#include <cmath>
#include <cstddef>

#include "io/images/color_operations.h"
#include "io/images/sharpness.h"
#include "io/images/warp.h"

namespace convoy {

namespace {

using enum ImageOperation;

/// The largest magnitudes of a policy.
struct Strengths {
  double shear, right, down, degrees, colors, bits;
};

constexpr Strengths kTrivial{0.99, 32, 32, 135, 0.99, 6};

Strengths rand_strengths(int height, int width) {
  return {0.3, 150.0 / 331.0 * width, 150.0 / 331.0 * height, 30, 0.9, 4};
}

bool has_magnitude(ImageOperation operation) {
  return operation != kIdentity && operation != kAutoContrast && operation != kEqualize;
}

bool has_sign(ImageOperation operation) {
  return has_magnitude(operation) && operation != kPosterize && operation != kSolarize;
}

// torch.linspace(start, end, kMagnitudes)[bin], in float32.
double spaced(double start, double end, int bin) {
  const auto first = static_cast<float>(start), last = static_cast<float>(end);
  const float step = (last - first) / static_cast<float>(kMagnitudes - 1);
  if (bin < kMagnitudes / 2) return first + step * static_cast<float>(bin);
  return last - step * static_cast<float>(kMagnitudes - 1 - bin);
}

double magnitude_of(ImageOperation operation, int bin, const Strengths& most) {
  switch (operation) {
    case kShearX:
    case kShearY: return spaced(0, most.shear, bin);
    case kTranslateX: return spaced(0, most.right, bin);
    case kTranslateY: return spaced(0, most.down, bin);
    case kRotate: return spaced(0, most.degrees, bin);
    case kBrightness:
    case kColor:
    case kContrast:
    case kSharpness: return spaced(0, most.colors, bin);
    case kPosterize: return 8 - std::nearbyint(bin / ((kMagnitudes - 1) / most.bits));
    case kSolarize: return spaced(255, 0, bin);
    case kIdentity:
    case kAutoContrast:
    case kEqualize: break;
  }
  return 0;
}

ImageOperation any_operation(SampleRandom& random) {
  return static_cast<ImageOperation>(random.below(static_cast<int>(kImageOperations.size())));
}

ImageChange with_sign(ImageOperation operation, double magnitude, SampleRandom& random) {
  return {operation, has_sign(operation) && random.coin() ? -magnitude : magnitude};
}

}  // namespace

double trivial_magnitude(ImageOperation operation, int bin) { return magnitude_of(operation, bin, kTrivial); }

double rand_magnitude(ImageOperation operation, int bin, int height, int width) {
  return magnitude_of(operation, bin, rand_strengths(height, width));
}

ImageChange trivial_change(SampleRandom& random) {
  const ImageOperation operation = any_operation(random);
  const double magnitude = has_magnitude(operation) ? trivial_magnitude(operation, random.below(kMagnitudes)) : 0;
  return with_sign(operation, magnitude, random);
}

std::vector<ImageChange> rand_changes(int operations, int bin, int height, int width, SampleRandom& random) {
  std::vector<ImageChange> changes;
  for (int i = 0; i < operations; ++i) {
    const ImageOperation operation = any_operation(random);
    changes.push_back(with_sign(operation, rand_magnitude(operation, bin, height, width), random));
  }
  return changes;
}

void apply_change(const ImageChange& change, std::uint8_t* image, int height, int width, int channels) {
  const std::int64_t pixels = std::int64_t{height} * width;
  const auto factor = static_cast<float>(1.0 + change.magnitude);
  // What needs its neighbours reads a copy, in memory that grows once per thread.
  const auto copy = [&] {
    thread_local std::vector<std::uint8_t> plain;
    plain.assign(image, image + pixels * channels);
    return plain.data();
  };
  const auto warp = [&](const AffineMatrix& matrix) { warp_image(copy(), height, width, channels, matrix, image); };
  switch (change.operation) {
    case kIdentity: return;
    case kShearX: return warp(shear_x_matrix(change.magnitude));
    case kShearY: return warp(shear_y_matrix(change.magnitude));
    case kTranslateX: return warp(shift_matrix(static_cast<int>(change.magnitude), 0));
    case kTranslateY: return warp(shift_matrix(0, static_cast<int>(change.magnitude)));
    case kRotate: return warp(rotation_matrix(change.magnitude, height, width));
    case kBrightness: return adjust_brightness(image, pixels, channels, factor);
    case kColor: return adjust_saturation(image, pixels, channels, factor);
    case kContrast: return adjust_contrast(image, pixels, channels, factor);
    case kSharpness: return adjust_sharpness(copy(), height, width, channels, factor, image);
    case kPosterize: return posterize(image, pixels, channels, static_cast<int>(change.magnitude));
    case kSolarize: return solarize(image, pixels, channels, change.magnitude);
    case kAutoContrast: return stretch_contrast(image, pixels, channels);
    case kEqualize: return equalize(image, pixels, channels);
  }
}

}  // namespace convoy
