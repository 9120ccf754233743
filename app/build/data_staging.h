// SPDX-License-Identifier: Apache-2.0
//
// data.stage_dir: brings the files of the data sets to each node's own storage before they are opened. Relies on
// io/files/file_stage.h, which copies. Invariant: one rank of a node looks at the files and copies them while the
// others wait, and all ranks return or all throw the same Error.
#pragma once

#include <string>
#include <vector>

#include "app/build/build_layout.h"
#include "app/config/config.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_group.h"
#include "parallel/world/world.h"

namespace convoy {

/// Where this rank reads data.train and data.validation: as the config says, or on its node.
struct DataPlaces {
  std::string train, validation;
  std::vector<std::string> lines;  ///< what was copied on this node, for people
};

/// Without data.stage_dir nothing is copied. Every one of `ranks`, the first ranks of `world`, calls it; `all` is their
/// communicator. check_stop is called after each slice of the copy; what it leaves is removed when the files are staged
/// again.
[[nodiscard]] DataPlaces stage_data(const Config& config, const World& world, const RankGroup& ranks, Communicator& all,
                                    const CheckStop& check_stop = {});

}  // namespace convoy
