// SPDX-License-Identifier: Apache-2.0
//
// Stands in for CUDA's header of this name.
#pragma once

#include "layers/backend/onednn/bfloat16.h"

using __nv_bfloat16 = convoy::BFloat16;
inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
