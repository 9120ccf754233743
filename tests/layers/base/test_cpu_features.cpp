// SPDX-License-Identifier: Apache-2.0
//
// Against the kernel's own list in /proc/cpuinfo.
#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "layers/backend/onednn/onednn_backend.h"  // IWYU pragma: keep, of Arm
#include "layers/base/cpu_features.h"

using namespace convoy;

namespace {

// Those of the first CPU: "flags" of x86, "Features" of Arm.
std::set<std::string> kernel_list() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

}  // namespace

TEST_CASE("the features of this CPU are those that the kernel lists") {
  const std::set<std::string> list = kernel_list();
  const CpuFeatures& found = cpu_features();
#if defined(__x86_64__)
  if (!list.contains("fpu")) return;  // not of this architecture: an emulator shows the host's file
  CHECK(found.crc32c == list.contains("sse4_2"));
  CHECK(found.avx2 == list.contains("avx2"));
  CHECK_FALSE(found.sve);
#elif defined(__aarch64__)
  CHECK_FALSE(found.avx2);
  if (!list.contains("asimd")) return;
  CHECK(found.crc32c == list.contains("crc32"));
  CHECK(found.sve == list.contains("sve"));
  CHECK(found.bf16 == list.contains("bf16"));
#endif
}

TEST_CASE("a level of x86-64 leaves out what is beyond it") {
  const CpuFeatures all{.crc32c = true, .avx2 = true, .avx512 = true, .avx512_bf16 = true};
  const auto count = [&](const char* level) {
    const CpuFeatures left = limited(all, level);
    CHECK(left.crc32c);
    return int{left.avx2} + int{left.avx512} + int{left.avx512_bf16};
  };
  for (const char* level : {"SSE41", "AVX"}) CHECK(count(level) == 0);
  for (const char* level : {"AVX2", "avx2", "AVX2_VNNI", "AVX2_VNNI_2"}) CHECK(count(level) == 1);
  for (const char* level : {"AVX512_CORE", "AVX512_CORE_VNNI"}) CHECK(count(level) == 2);
  for (const char* level : {"AVX512_CORE_BF16", "AVX512_CORE_AMX", "AVX10_1_512", "ALL", "DEFAULT", ""}) {
    CHECK(count(level) == 3);
  }
  CHECK_FALSE(limited({.avx512 = true}, "ALL").avx2);
}

TEST_CASE("the instructions of Arm by name") {
  CHECK(arm_instructions({}) == "NEON");
  CHECK(arm_instructions({.bf16 = true}) == "NEON with BF16");
  CHECK(arm_instructions({.sve = true}) == "SVE");
  CHECK(arm_instructions({.sve = true, .bf16 = true}) == "SVE with BF16");
#ifdef __aarch64__
  CHECK(OnednnBackend::library_description().ends_with(", " + arm_instructions(cpu_features())));
#endif
}
