// SPDX-License-Identifier: Apache-2.0
//
// x86-64: CPUID, by the compiler's built-in functions. Arm: the kernel's list (getauxval(3), AT_HWCAP).
#include "layers/base/cpu_features.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace convoy {

namespace {

CpuFeatures find_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  features.crc32c = __builtin_cpu_supports("sse4.2") != 0;
  features.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                  __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
#ifndef __clang__  // clang 14 does not know the name
  features.avx2 = features.avx2 && __builtin_cpu_supports("f16c") != 0;
#endif
  features.avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                    __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                    __builtin_cpu_supports("avx512vl") != 0;
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16") != 0;
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* level = std::getenv(name);
    if (level != nullptr && *level != '\0') return limited(features, level);
  }
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  features.crc32c = (first & HWCAP_CRC32) != 0;
  features.sve = (first & HWCAP_SVE) != 0;
  features.bf16 = (second & HWCAP2_BF16) != 0;
#endif
  return features;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = find_features();
  return features;
}

CpuFeatures limited(CpuFeatures features, std::string level) {
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool avx2 = level != "SSE41" && level != "AVX", avx512 = avx2 && !level.starts_with("AVX2");
  features.avx2 = features.avx2 && avx2;
  features.avx512 = features.avx512 && avx512;
  features.avx512_bf16 = features.avx512_bf16 && avx512 && level != "AVX512_CORE" && level != "AVX512_CORE_VNNI";
  return features;
}

std::string arm_instructions(const CpuFeatures& features) {
  return std::string(features.sve ? "SVE" : "NEON") + (features.bf16 ? " with BF16" : "");
}

}  // namespace convoy
