// SPDX-License-Identifier: Apache-2.0
//
// convoy schedule: the grid of a pipeline schedule, from its numbers alone.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "app/commands/commands.h"
#include "layers/base/error.h"
#include "parallel/schedule/schedule_print.h"

namespace convoy {

namespace {

constexpr std::int64_t kMostForwards = 1 << 21;  // interleaved with two chunks at the largest stages and microbatches

}  // namespace

int schedule_command(const ScheduleArguments& arguments) {
  const bool two = arguments.name == "interleaved" || arguments.name == "zb_v";
  const int chunks = arguments.chunks > 0 ? arguments.chunks : (two ? 2 : 1);
  const std::int64_t forwards = std::int64_t{arguments.stages} * arguments.microbatches * chunks;
  if (forwards > kMostForwards) {
    fail_usage("--stages, --microbatches, --chunks: {} x {} x {} forwards are more than {} (lower one of the three)",
               arguments.stages, arguments.microbatches, chunks, kMostForwards);
  }
  const Schedule schedule = make_schedule(arguments.name, arguments.stages, arguments.microbatches, chunks);
  const bool color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::cout << schedule_grid(schedule, color) << std::flush;
  return 0;
}

}  // namespace convoy
