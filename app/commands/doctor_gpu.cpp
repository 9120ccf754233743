// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "app/build/build_backend.h"
#include "app/commands/doctor_report.h"

namespace convoy {

namespace {

/// Whether version `a`, numbers with points between, comes before `b`.
bool is_older(const std::string& a, const std::string& b) {
  const auto numbers = [](std::string text) {
    std::replace(text.begin(), text.end(), '.', ' ');
    std::istringstream words(text);
    return std::vector<int>(std::istream_iterator<int>(words), {});
  };
  return numbers(a) < numbers(b);
}

/// Libraries that are older than what the program was built with may lack what it calls.
void check_gpu_libraries(Report& report) {
  for (const LibraryVersion& library : gpu_libraries()) {
    const std::string text = fmt::format("{} (built with {})", library.found, library.built);
    if (is_older(library.found, library.built)) {
      report.warn(library.name.c_str(), text + ": put the newer one first in LD_LIBRARY_PATH, or build convoy here");
    } else {
      report.ok(library.name.c_str(), text);
    }
  }
}

/// Which GPUs can read which others' memory: without that their messages go through the host.
void check_peers(Report& report, const std::vector<std::vector<bool>>& peers) {
  const std::size_t count = peers.size();
  std::string missing;
  for (std::size_t from = 0; from < count; ++from) {
    for (std::size_t to = 0; to < count; ++to) {
      if (from != to && !peers[from][to]) missing += fmt::format("{}{}-{}", missing.empty() ? "" : " ", from, to);
    }
  }
  if (count < 2) return;
  if (missing.empty()) {
    report.ok("peers", fmt::format("each of the {} GPUs reaches the memory of all others", count));
  } else {
    report.warn("peers", fmt::format("no direct access from one GPU to another: {}; messages between them go through "
                                     "the host (nvidia-smi topo -m shows the links)",
                                     missing));
  }
}

}  // namespace

void check_gpus(Report& report) {
  const CudaReport cuda = cuda_report();
  if (!kCudaBuilt) {
    report.ok("GPU", fmt::format("none: {} ({})", cuda.problem, cuda.remedy));
    return;
  }
  check_gpu_libraries(report);
  if (!cuda.driver.empty()) report.ok("driver", cuda.driver);
  if (cuda.devices.empty()) {
    report.warn("GPU", fmt::format("none, so the CPU computes: {}; {}", cuda.problem, cuda.remedy));
    return;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) report.ok("visible", fmt::format("CUDA_VISIBLE_DEVICES={}", visible));
  for (std::size_t i = 0; i < cuda.devices.size(); ++i) {
    report.ok("GPU", fmt::format("{}: {}", i, cuda.devices[i].description()));
  }
  check_peers(report, cuda.peers);
}

}  // namespace convoy
