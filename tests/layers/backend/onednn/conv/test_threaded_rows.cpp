// SPDX-License-Identifier: Apache-2.0
//
// How rows are divided between threads; test_linear.cpp has the products of such rows.
#include <doctest/doctest.h>

#include "layers/backend/onednn/conv/threaded_rows.h"
#include "tests/layers/backend/reference.h"

using namespace convoy;
using namespace convoy::reference;

TEST_CASE("rows are divided where each thread has enough of them") {
  Device device(3);
  CHECK(row_threads(1) == 1);
  CHECK(row_threads(255) == 1);
  CHECK(row_threads(256) == 2);
  CHECK(row_threads(100'000) == 3);
  CHECK(first_row(391, 0, 3) == 0);
  CHECK(first_row(391, 1, 3) == 130);
  CHECK(first_row(391, 3, 3) == 391);
}
