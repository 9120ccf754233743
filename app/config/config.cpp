// SPDX-License-Identifier: Apache-2.0
//
// What follows from a Config alone: the folders of a run and the signals that it names.
#include "app/config/config.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>

#include "io/files/crc32c.h"

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

std::string absolute_run_folder(const Config& config) {
  return std::filesystem::absolute(run_folder(config)).lexically_normal().string();
}

std::string copy_folder(const Config& config) {
  if (config.checkpoint.copy_to.empty()) return "";
  return fmt::format("{}/{}-{:08x}", config.checkpoint.copy_to, config.run.name, crc32c(absolute_run_folder(config)));
}

int signal_number(std::string_view name) {
  const auto at = std::find(kSignalNames.begin(), kSignalNames.end(), name);
  return at == kSignalNames.end() ? 0 : kSignalNumbers[static_cast<std::size_t>(at - kSignalNames.begin())];
}

std::span<const std::string_view> signal_names() { return kSignalNames; }

}  // namespace convoy
