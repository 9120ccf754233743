// SPDX-License-Identifier: Apache-2.0
//
// Numbers of things in messages.
#include <doctest/doctest.h>

#include <utility>

#include "layers/base/counted.h"

using namespace convoy;

TEST_CASE("a number of things has its plural") {
  CHECK(counted(1, "image") == "1 image");
  CHECK(counted(0, "image") == "0 images");
  CHECK(counted(2U, "replica") == "2 replicas");
  const std::pair<const char*, const char*> words[] = {
      {"class", "classes"}, {"batch", "batches"}, {"epoch", "epochs"}, {"microbatch", "microbatches"},
      {"entry", "entries"}, {"try", "tries"},     {"key", "keys"},     {"box", "boxes"}};
  for (const auto& [one, many] : words) CHECK(plural(one) == many);
}
