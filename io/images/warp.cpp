// SPDX-License-Identifier: Apache-2.0
//
// Pillow 9.4: Geometry.c, Image.py; torchvision 0.14: transforms/functional.py. Of each row the columns that lie in the
// image are found first, so that the loop over them has no conditions.
#include "io/images/warp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>

namespace convoy {

namespace {

constexpr double kDegree = std::numbers::pi / 180.0;
constexpr int kFraction = 16;
constexpr std::int64_t kOne = std::int64_t{1} << kFraction;

std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * kOne + 0.5)); }

// torchvision goes from the level to degrees and back.
double angle_of(double level) { return std::atan(level) * (180.0 / std::numbers::pi) * kDegree; }

// Python's round(value, 15).
double rounded(double value) { return std::nearbyint(value * 1e15) / 1e15; }

struct Columns {
  std::int64_t first, last;  // last is not one of them
};

// The x in `columns` with 0 <= start + x * step < size in pixels.
Columns inside(const Columns& columns, std::int64_t start, std::int64_t step, int size) {
  const std::int64_t end = size * kOne;
  std::int64_t first = 0, last = columns.last;
  if (step == 0) {
    if (start < 0 || start >= end) last = 0;
  } else if (step > 0) {
    if (start < 0) first = (-start + step - 1) / step;
    last = start >= end ? 0 : (end - start + step - 1) / step;
  } else {
    if (start >= end) first = (start - end) / -step + 1;
    last = start < 0 ? 0 : start / -step + 1;
  }
  first = std::clamp(first, columns.first, columns.last);
  return {first, std::clamp(last, first, columns.last)};
}

template <std::int64_t kChannels>
void gather(const std::uint8_t* image, std::int64_t width, std::int64_t x, std::int64_t y, std::int64_t step_x,
            std::int64_t step_y, std::int64_t count, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i, x += step_x, y += step_y, out += kChannels) {
    std::memcpy(out, image + ((y >> kFraction) * width + (x >> kFraction)) * kChannels, kChannels);
  }
}

}  // namespace

AffineMatrix shear_x_matrix(double level) { return {1, std::tan(angle_of(level)), 0, 0, 1, 0}; }

AffineMatrix shear_y_matrix(double level) {
  const double angle = angle_of(level);
  return {1, 0, 0, std::sin(angle) / std::cos(angle), 1, 0};
}

AffineMatrix shift_matrix(int right, int down) {
  return {1, 0, -static_cast<double>(right), 0, 1, -static_cast<double>(down)};
}

AffineMatrix rotation_matrix(double degrees, int height, int width) {
  double turn = std::fmod(degrees, 360.0);
  if (turn < 0) turn += 360.0;
  const double angle = -turn * kDegree, x = width / 2.0, y = height / 2.0;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  return {cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y};
}

void warp_image(const std::uint8_t* image, int height, int width, int channels, const AffineMatrix& m,
                std::uint8_t* out) {
  const std::int64_t step_x = fixed(m[0]), step_y = fixed(m[3]);
  std::int64_t start_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), start_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  const auto row_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  for (int row = 0; row < height; ++row, out += row_bytes, start_x += fixed(m[1]), start_y += fixed(m[4])) {
    const Columns seen = inside(inside({0, width}, start_x, step_x, width), start_y, step_y, height);
    const std::int64_t count = seen.last - seen.first;
    const std::int64_t x = start_x + seen.first * step_x, y = start_y + seen.first * step_y;
    const auto before = static_cast<std::size_t>(seen.first * channels);
    const auto shown = static_cast<std::size_t>(count * channels);
    std::memset(out, 0, before);
    if (count > 0 && step_x == kOne && step_y == 0) {
      std::memcpy(out + before, image + ((y >> kFraction) * width + (x >> kFraction)) * channels, shown);
    } else if (channels == 3) {
      gather<3>(image, width, x, y, step_x, step_y, count, out + before);
    } else {
      gather<1>(image, width, x, y, step_x, step_y, count, out + before);
    }
    std::memset(out + before + shown, 0, row_bytes - before - shown);
  }
}

}  // namespace convoy
