// SPDX-License-Identifier: Apache-2.0
//
// From the [model], [lr_schedule] and [data] sections to the objects of layers/.
#pragma once

#include <cstdint>
#include <vector>

#include "app/config/config.h"
#include "io/data/dataset.h"
#include "layers/base/batch.h"
#include "layers/model.h"
#include "layers/optim/lr_schedule.h"

namespace convoy {

/// Length of the network's output: what the data has, or what the config says.
[[nodiscard]] std::int64_t output_size(const Config& config, const Dataset& data);
/// Fresh units with that output; each list of units is built into one model.
[[nodiscard]] std::vector<Unit> build_units(const Config& config, const Dataset& data);
/// The same with an output of that length. What model.freeze and model.recompute name is marked; throws a usage
/// Error when a name is no unit's, when one is there twice, or when all units are frozen.
[[nodiscard]] std::vector<Unit> build_units(const Config& config, std::int64_t outputs);
/// [n, C, H, W] or [n, F] for a microbatch of n samples; where the size of images changes, of the largest.
[[nodiscard]] Shape microbatch_shape(const Dataset& data, std::int64_t samples);
/// What is known of the network for such a microbatch. Throws a usage Error when it does not fit, at a smaller size of
/// training images either.
[[nodiscard]] std::vector<UnitInfo> describe_model(const Config& config, Backend& backend, const Dataset& data,
                                                   std::int64_t samples);
/// Throws a usage Error unless images of that size fit the network; `key` gave it.
void check_image_size(const Config& config, Backend& backend, const Dataset& data, std::int64_t size, const char* key);
/// Throws a usage Error unless the last unit puts out what the data has.
void check_outputs(const Config& config, const Dataset& data, const Shape& output);

[[nodiscard]] LrSchedule lr_schedule(const Config& config, std::int64_t steps_per_epoch, std::int64_t total_steps);
[[nodiscard]] Normalization normalization(const DataOptions& data);

}  // namespace convoy
