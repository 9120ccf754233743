// SPDX-License-Identifier: Apache-2.0
//
// What several keys must keep between them, as far as it can be told without opening the data. read_config() calls
// this when every key by itself is good.
#pragma once

#include "app/config/config.h"

namespace convoy {

/// Throws an OptionError about the first thing wrong.
void check_config(const Config& config);

/// The same about run.replay_every alone, for a run on a GPU or not.
void check_replay(const Config& config, bool on_gpu);

}  // namespace convoy
