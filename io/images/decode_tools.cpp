// SPDX-License-Identifier: Apache-2.0
#include "io/images/decode_tools.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace convoy {

namespace {

// An evaluation is to see what torchvision sees: it takes a smaller decoding only where the filter that follows halves
// that once more (mean difference per image below 1/255). For training any that is large enough will do.
constexpr int kFinerForEvaluation = 2;

// The whole pixels that the box touches, and `more` around them, as far as there are any.
PixelBox pixels_around(const ResizeBox& box, int more, int width, int height) {
  const int left = std::max(0, static_cast<int>(std::floor(box.left)) - more);
  const int top = std::max(0, static_cast<int>(std::floor(box.top)) - more);
  const int right = std::min(width, static_cast<int>(std::ceil(box.left + box.width)) + more);
  const int bottom = std::min(height, static_cast<int>(std::ceil(box.top + box.height)) + more);
  return {left, top, right - left, bottom - top};
}

// `part` of what was decoded, and `box`, both of the full image, in terms of each other.
std::pair<ImageView, ResizeBox> view_of(const DecodedPixels& d, const PixelBox& part, const ResizeBox& box) {
  const auto in = [&](double full, double origin, int limit) {
    return std::clamp((full - origin) * d.scale, 0.0, static_cast<double>(limit));
  };
  const int left = static_cast<int>(std::floor(in(part.left, d.left, d.width - 1)));
  const int top = static_cast<int>(std::floor(in(part.top, d.top, d.height - 1)));
  const int right = static_cast<int>(std::ceil(in(part.left + part.width, d.left, d.width)));
  const int bottom = static_cast<int>(std::ceil(in(part.top + part.height, d.top, d.height)));
  const auto channels = static_cast<std::size_t>(d.channels);
  const std::size_t stride = static_cast<std::size_t>(d.width) * channels;
  const ImageView view{d.pixels + static_cast<std::size_t>(top) * stride + static_cast<std::size_t>(left) * channels,
                       right - left, bottom - top, d.channels, stride};
  return {view,
          {(box.left - d.left) * d.scale - left, (box.top - d.top) * d.scale - top, box.width * d.scale,
           box.height * d.scale}};
}

}  // namespace

ResizeBox central_box(int width, int height, int resize, int size) {
  const std::int64_t shorter = std::min(width, height), longer = std::max(width, height);
  const std::int64_t new_longer = resize * longer / shorter;  // cut off to a whole number, as there
  const auto stretched = static_cast<double>(new_longer);
  const double new_width = width <= height ? resize : stretched, new_height = width <= height ? stretched : resize;
  const double left = std::nearbyint((new_width - size) / 2), top = std::nearbyint((new_height - size) / 2);
  const double across = width / new_width, down = height / new_height;
  return {left * across, top * down, size * across, size * down};
}

void DecodeTools::decode_box(const PixelBox& part, const ResizeBox& box, int finer, const DecodedSize& size,
                             std::uint8_t* out) {
  const DecodedPixels decoded = decoder.decode(part, size.width * finer, size.height * finer, size.channels);
  const auto [view, from] = view_of(decoded, part, box);
  resizer.resize(view, from, size.width, size.height, size.flip, out);
}

void DecodeTools::decode_central(const ImageHeader& header, int resize, const DecodedSize& size, std::uint8_t* out) {
  const ResizeBox box = central_box(header.width, header.height, resize, size.width);
  const int reach = static_cast<int>(std::ceil(std::max({1.0, box.width / size.width, box.height / size.height})));
  decode_box(pixels_around(box, reach, header.width, header.height), box, kFinerForEvaluation, size, out);
}

void DecodeTools::decode_all(const ImageHeader& header, const DecodedSize& size, std::uint8_t* out) {
  const ResizeBox box{0, 0, static_cast<double>(header.width), static_cast<double>(header.height)};
  decode_box({0, 0, header.width, header.height}, box, kFinerForEvaluation, size, out);
}

}  // namespace convoy
