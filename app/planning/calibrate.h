// SPDX-License-Identifier: Apache-2.0
//
// Measures what planning needs to know, on the ranks that run: units at several microbatch sizes, the link between two
// ranks, an all-reduce, the optimizer, the input. Takes about a minute for a large model.
#pragma once

#include "app/build/build_layout.h"
#include "app/build/device_choice.h"
#include "app/config/config.h"
#include "app/planning/machine_model.h"
#include "io/data/dataset.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_group.h"

namespace convoy {

/// What costs that are measured now are of.
[[nodiscard]] MeasuredModel measured_model(const Config& config, const Dataset& data, const DeviceChoice& device);

/// ranks: those of `all`. Every rank calls it and gets the same numbers. check_stop is called after each round.
[[nodiscard]] MachineModel calibrate(const Config& config, const Dataset& data, const DeviceChoice& device,
                                     const RankGroup& ranks, Communicator& all, const CheckStop& check_stop = {});

}  // namespace convoy
