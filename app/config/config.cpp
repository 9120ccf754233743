// SPDX-License-Identifier: Apache-2.0
//
// What follows from a Config alone: the folders of a run, the signals that it names, and whether its
// batch divides.
#include "app/config/config.h"

#include <algorithm>
#include <csignal>

#include "layers/base/error.h"

namespace convoy {

namespace {

constexpr auto kSignalNames =
    std::to_array<std::string_view>({"SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU"});
constexpr auto kSignalNumbers = std::to_array<int>({SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU});
static_assert(kSignalNames.size() == kSignalNumbers.size());

}  // namespace

std::string run_folder(const Config& config) { return config.run.dir + "/" + config.run.name; }

std::string checkpoint_folder(const Config& config) {
  return config.checkpoint.dir.empty() ? run_folder(config) + "/checkpoints" : config.checkpoint.dir;
}

int signal_number(std::string_view name) {
  const auto at = std::find(kSignalNames.begin(), kSignalNames.end(), name);
  return at == kSignalNames.end() ? 0 : kSignalNumbers[static_cast<std::size_t>(at - kSignalNames.begin())];
}

std::span<const std::string_view> signal_names() { return kSignalNames; }

std::string batch_problem(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches) {
  const std::int64_t parts = replicas * microbatches;
  if (global_batch % parts == 0) return {};
  const std::string split = replicas == 1       ? fmt::format("{} microbatches", microbatches)
                            : microbatches == 1 ? fmt::format("{} replicas", replicas)
                                                : fmt::format("{} replicas x {} microbatches", replicas, microbatches);
  const std::int64_t below = global_batch / parts * parts;
  const std::string sizes =
      below == 0 ? fmt::format("{} does", parts) : fmt::format("{} or {} do", below, below + parts);
  return fmt::format("train.global_batch_size: {} does not divide into {} ({})", global_batch, split, sizes);
}

void check_batch(std::int64_t global_batch, std::int64_t replicas, std::int64_t microbatches) {
  const std::string problem = batch_problem(global_batch, replicas, microbatches);
  if (!problem.empty()) fail_usage("{}", problem);
}

}  // namespace convoy
