// SPDX-License-Identifier: Apache-2.0
//
// Linear layers where cuBLASLt has no algorithm: the bias is added apart, or a kernel of our own does it all.
#include <cublasLt.h>
#include <doctest/doctest.h>

#include "tests/layers/backend/cuda/gpu.h"
#include "tests/layers/backend/every_operation.h"

using namespace convoy;
using on_host::no_algorithm;
using on_host::NoAlgorithm;

namespace {

struct Without {
  explicit Without(NoAlgorithm what) { no_algorithm = what; }
  ~Without() { no_algorithm = NoAlgorithm::kNever; }
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;
};

}  // namespace

TEST_CASE("linear layers agree with the CPU's where cuBLASLt has no algorithm") {
  for (const NoAlgorithm what : {NoAlgorithm::kWithBias, NoAlgorithm::kAlways}) {
    const Without without(what);
    for_each_precision([](CheckedGpu& backends, const Precision& precision) {
      for (const bool with_bias : {false, true}) {
        attempt(precision.name, [&] { call_linear(backends.backend, 1, 1, 1, with_bias); });
        attempt(precision.name, [&] { call_linear(backends.backend, 5, 3, 7, with_bias); });
        attempt(precision.name, [&] { call_linear(backends.backend, 33, 130, 65, with_bias); });
      }
    });
  }
}
