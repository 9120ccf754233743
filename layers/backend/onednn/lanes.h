// SPDX-License-Identifier: Apache-2.0
//
// Vectors of float that the compiler maps to what the instruction set has, for kernels whose loops it does not
// vectorise by itself. They go by reference: how they are passed otherwise depends on the instruction set. Private to
// layers/backend/onednn.
#pragma once

#include <cstdint>
#include <cstring>

#define CONVOY_INLINE inline __attribute__((always_inline))  // part of what is compiled for several instruction sets

namespace convoy {

constexpr std::int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using LaneWords = std::uint32_t __attribute__((vector_size(kLanes * sizeof(float))));
using LaneBytes = std::uint8_t __attribute__((vector_size(kLanes)));

CONVOY_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof(to)); }
CONVOY_INLINE void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof(from)); }

}  // namespace convoy
