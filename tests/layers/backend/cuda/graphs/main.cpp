// SPDX-License-Identifier: Apache-2.0
//
// Runs the tests of cuDNN's graphs where cuDNN can load its engines (some want libcuda.so.1, the driver's or the
// toolkit's stub) and takes our descriptions of GPUs. Elsewhere the program is skipped whole: it ends with the code
// that CTest shows as "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <exception>

#include "described_gpu.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) {
    fmt::print("skipped: cuDNN's engines want libcuda.so.1, NVIDIA's driver or the toolkit's stub ({})\n", dlerror());
    return kSkipped;
  }
  try {
    static_cast<void>(convoy::device_properties(convoy::kH200));
  } catch (const std::exception& error) {
    fmt::print("skipped: this cuDNN wants another description of a GPU: {}\n", error.what());
    return kSkipped;
  }
  return doctest::Context(argc, argv).run();
}
