// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/parallel_options.h"

#include "layers/base/option_error.h"

namespace convoy {

ScheduleChoice schedule_choice(const ParallelOptions& parallel, int stages) {
  const int microbatches = static_cast<int>(parallel.microbatches);
  switch (parallel.mode) {
    case ParallelMode::kData:
    case ParallelMode::kScatter: return {"one_stage", 1, microbatches, 1};
    case ParallelMode::kModel: return {"model", stages, 1, 1};
    case ParallelMode::kPipeline: break;
  }
  return {parallel.schedule, stages, microbatches,
          schedule_chunks(parallel.schedule, static_cast<int>(parallel.chunks))};
}

void check_batch(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches, std::string_view which) {
  const std::int64_t parts = replicas * microbatches;
  if (global_batch % parts == 0) return;
  const std::string split = replicas == 1       ? fmt::format("{} microbatches", microbatches)
                            : microbatches == 1 ? fmt::format("{} replicas", replicas)
                                                : fmt::format("{} replicas x {} microbatches", replicas, microbatches);
  const std::int64_t below = global_batch / parts * parts;
  const std::string sizes =
      below == 0 ? fmt::format("{} does", parts) : fmt::format("{} or {} do", below, below + parts);
  fail_option("train.global_batch_size", "{} does not divide into {} ({}){}", global_batch, split, sizes, which);
}

}  // namespace convoy
