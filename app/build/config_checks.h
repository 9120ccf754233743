// SPDX-License-Identifier: Apache-2.0
//
// What several keys must keep between them, as far as it can be told without opening the data. read_config() calls
// this when every key by itself is good.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "app/config/config.h"

namespace convoy {

/// What a parallel mode asks of make_schedule().
struct ScheduleChoice {
  std::string_view name;
  int stages = 1, microbatches = 1, chunks = 1;
};
[[nodiscard]] ScheduleChoice schedule_choice(const ParallelConfig& parallel, int stages);

/// Throws a usage Error about the first thing wrong. `place` says where a key was given, or would have been.
void check_config(const Config& config, const std::function<std::string(std::string_view)>& place);

}  // namespace convoy
