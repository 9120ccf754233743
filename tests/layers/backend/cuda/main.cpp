// SPDX-License-Identifier: Apache-2.0
//
// Runs the tests of the CUDA backend where there is a GPU. Elsewhere the program is skipped whole: it ends with the
// code that CTest shows as "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "layers/backend/cuda_devices.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  const convoy::CudaReport report = convoy::cuda_report();
  if (report.devices.empty()) {
    fmt::print("no GPU: skipped ({})\n", report.problem);
    return kSkipped;
  }
  fmt::print("{}\n", report.devices.front().description());
  return doctest::Context(argc, argv).run();
}
