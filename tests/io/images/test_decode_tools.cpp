// SPDX-License-Identifier: Apache-2.0
//
// The box that evaluation decodes, worked out by hand from torchvision's definition.
#include <doctest/doctest.h>

#include "io/images/decode_tools.h"

using namespace convoy;

TEST_CASE("evaluation shows what Resize and CenterCrop show") {
  // 500 x 375: Resize(256) gives int(256 * 500 / 375) = 341 x 256; the crop starts at round(58.5) = 58, 16.
  const ResizeBox wide = central_box(500, 375, 256, 224);
  CHECK(wide.left == doctest::Approx(58 * 500.0 / 341));
  CHECK(wide.top == doctest::Approx(16 * 375.0 / 256));
  CHECK(wide.width == doctest::Approx(224 * 500.0 / 341));
  CHECK(wide.height == doctest::Approx(224 * 375.0 / 256));
  // 333 x 500: 256 x 384; from 16, 80.
  const ResizeBox tall = central_box(333, 500, 256, 224);
  CHECK(tall.left == doctest::Approx(16 * 333.0 / 256));
  CHECK(tall.top == doctest::Approx(80 * 500.0 / 384));
  // 32 x 32 with resize = size: all of it.
  const ResizeBox all = central_box(32, 32, 32, 32);
  CHECK(all.left == 0);
  CHECK(all.width == 32);
}
