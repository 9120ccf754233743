// SPDX-License-Identifier: Apache-2.0
//
// What a device can do at best, measured on it: the rate of a large matrix product, the rate of a large vector update,
// and the time of a step's convolutions when each one runs alone, over and over. Relies on the backend's operations
// only. Invariant: nothing here is part of a training step.
#pragma once

#include <cstdint>
#include <map>

#include "layers/backend/backend.h"
#include "layers/backend/observe/profile_backend.h"

namespace convoy {

struct DeviceBounds {
  double flops_per_second = 0;  ///< the best of several products of two square matrices, in the compute type
  double bytes_per_second = 0;  ///< the best of several y += a x over vectors far larger than the caches, float32
};

[[nodiscard]] DeviceBounds measure_bounds(Backend& backend);

/// Median seconds of one such call on memory of its own, by call.
[[nodiscard]] std::map<ConvolutionCall, double> time_alone(Backend& backend,
                                                           const std::map<ConvolutionCall, std::int64_t>& calls);

}  // namespace convoy
