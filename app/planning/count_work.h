// SPDX-License-Identifier: Apache-2.0
//
// Counts the work of a model's training step on a GPU: what convoy bench --model-bytes counts, operation by operation,
// as lines in the samples of a microbatch. Needs no GPU and times nothing.
#pragma once

#include "app/config/config.h"
#include "app/planning/gpu_costs.h"
#include "io/data/dataset.h"

namespace convoy {

/// The config as `convoy plan --machine` plans it: its own in a precision of so many bytes per element (4, or 2: fp16
/// stays, others become bf16).
[[nodiscard]] Config gpu_config(const Config& config, int element_bytes);

/// Of the config's model, data, precision and optimizer on one rank with one microbatch.
[[nodiscard]] ModelWork count_work(const Config& config, const Dataset& data);

}  // namespace convoy
