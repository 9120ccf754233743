// SPDX-License-Identifier: Apache-2.0
//
// A machine that is not here, from the figures of its data sheet in a small TOML file (app/configs/machines/): times of
// units follow from their operations and bytes (the roofline model, Williams et al. 2009). Estimates, for comparing
// layouts.
#pragma once

#include <string>

#include "app/build/device_choice.h"
#include "app/config/config.h"
#include "app/planning/machine_model.h"
#include "io/data/dataset.h"

namespace convoy {

/// Throws a usage Error naming file and key. The bytes that units keep are measured on this machine with one sample.
[[nodiscard]] MachineModel stated_machine(const std::string& path, const Config& config, const Dataset& data,
                                          const DeviceChoice& device);

}  // namespace convoy
