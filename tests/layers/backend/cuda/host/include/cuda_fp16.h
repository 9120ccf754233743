// SPDX-License-Identifier: Apache-2.0
//
// Stands in for CUDA's header of this name.
#pragma once

#include "layers/backend/observe/float16.h"

using __half = convoy::Float16;
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __float2half_rn(float value) { return __half(value); }
