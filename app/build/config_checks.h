// SPDX-License-Identifier: Apache-2.0
//
// What several keys must keep between them, as far as it can be told without opening the data. read_config() calls
// this when every key by itself is good.
#pragma once

#include "app/config/config.h"

namespace convoy {

/// Whether the config must suit the devices that this build can compute on.
enum class DeviceCheck { kBuild, kNone };

/// Throws an OptionError about the first thing wrong.
void check_config(const Config& config, DeviceCheck device = DeviceCheck::kBuild);

/// The same about run.replay_every alone, for a run on a GPU or not.
void check_replay(const Config& config, bool on_gpu);

}  // namespace convoy
