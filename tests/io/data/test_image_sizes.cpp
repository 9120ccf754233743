// SPDX-License-Identifier: Apache-2.0
//
// Which size the images of an epoch have.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "io/data/image_sizes.h"

using namespace convoy;

TEST_CASE("each size holds from its milestone up to the next") {
  const ImageSizes sizes({128, 192, 160}, {2, 5});
  std::vector<std::int64_t> by_epoch;
  for (std::int64_t epoch = 0; epoch < 7; ++epoch) by_epoch.push_back(sizes.at(epoch));
  CHECK(by_epoch == std::vector<std::int64_t>{128, 128, 192, 192, 192, 160, 160});
  CHECK(sizes.at(1000000) == 160);
  CHECK(sizes.largest() == 192);
}

TEST_CASE("one size is that of all epochs") {
  const ImageSizes size = 224;
  CHECK(size.at(0) == 224);
  CHECK(size.at(90) == 224);
  CHECK(size.largest() == 224);
}
