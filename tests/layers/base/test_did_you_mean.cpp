// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <string_view>

#include "layers/base/did_you_mean.h"

using namespace convoy;

TEST_CASE("edit distance") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("epoch", "epochs") == 1);
  CHECK(edit_distance("sdg", "sgd") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest name") {
  constexpr auto known = std::to_array<std::string_view>({"epochs", "steps", "global_batch_size", "lr"});
  CHECK(did_you_mean("epoch", known) == "epochs");
  CHECK(did_you_mean("Steps", known) == "steps");
  CHECK(did_you_mean("global-batch-size", known) == "global_batch_size");
  CHECK(did_you_mean("batch_size", known).empty());
  CHECK(did_you_mean("l", known) == "lr");
  CHECK(did_you_mean("xy", known).empty());
  CHECK(did_you_mean("", known).empty());
  CHECK(join(known) == "epochs, steps, global_batch_size, lr");
}
