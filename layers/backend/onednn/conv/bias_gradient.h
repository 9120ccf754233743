// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a bias beside weight gradients that give none. Private to layers/backend/onednn.
#pragma once

#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// `inner`, which is always called without a bias, and dbias [out] as the sum of dy [n, out, ...] over all but its
/// channels: in float32 over some rows, then in double. Its bits do not depend on the number of threads.
std::unique_ptr<WeightGradient> with_bias_gradient(std::unique_ptr<WeightGradient> inner);

}  // namespace convoy
