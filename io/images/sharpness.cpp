// SPDX-License-Identifier: Apache-2.0
//
// Pillow 9.4: ImageFilter.SMOOTH, Filter.c, Blend.c.
#include "io/images/sharpness.h"

#include <cstddef>
#include <cstring>

#include "layers/base/cpu_features.h"

namespace convoy {

namespace {

// sum / 13, rounded, as a product: exact for every sum of 8-bit pixels. Pillow's float32 sums give the same, since no
// quotient by 13 is nearer than 1/26 to the middle of two whole numbers.
int smoothed(int sum) { return (sum + 6) * 5042 >> 16; }

constexpr bool is_exact() {
  for (int sum = 0; sum <= 13 * 255; ++sum) {
    if ((sum + 6) * 5042 >> 16 != (2 * sum + 13) / 26) return false;
  }
  return true;
}
static_assert(is_exact());

CONVOY_VECTORIZED void sharpen_row(const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below,
                                   std::int64_t count, std::int64_t channels, float factor, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const int sum = above[i - channels] + above[i] + above[i + channels] + row[i - channels] + 5 * row[i] +
                    row[i + channels] + below[i - channels] + below[i] + below[i + channels];
    const int smooth = smoothed(sum);
    float mixed = static_cast<float>(smooth) + factor * static_cast<float>(row[i] - smooth);
    mixed = mixed < 0.0F ? 0.0F : mixed;
    mixed = mixed > 255.0F ? 255.0F : mixed;
    out[i] = static_cast<std::uint8_t>(static_cast<int>(mixed));
  }
}

}  // namespace

void adjust_sharpness(const std::uint8_t* image, int height, int width, int channels, float factor, std::uint8_t* out) {
  const auto row_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  const auto pixel = static_cast<std::size_t>(channels);
  if (height < 3 || width < 3) {
    std::memcpy(out, image, static_cast<std::size_t>(height) * row_bytes);
    return;
  }
  std::memcpy(out, image, row_bytes);
  for (int y = 1; y < height - 1; ++y) {
    const std::uint8_t* const row = image + static_cast<std::size_t>(y) * row_bytes;
    std::uint8_t* const to = out + static_cast<std::size_t>(y) * row_bytes;
    std::memcpy(to, row, pixel);
    sharpen_row(row - row_bytes + pixel, row + pixel, row + row_bytes + pixel,
                static_cast<std::int64_t>(row_bytes - 2 * pixel), channels, factor, to + pixel);
    std::memcpy(to + row_bytes - pixel, row + row_bytes - pixel, pixel);
  }
  const auto last = static_cast<std::size_t>(height - 1) * row_bytes;
  std::memcpy(out + last, image + last, row_bytes);
}

}  // namespace convoy
