// SPDX-License-Identifier: Apache-2.0
#include "app/base/peak_memory.h"

#include <malloc.h>

#include <fstream>
#include <string>

namespace convoy {

void reset_peak_memory() {
  malloc_trim(0);  // what was freed is no longer ours
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::int64_t peak_memory(Backend& backend) {
  if (backend.name() != "cpu") return static_cast<std::int64_t>(backend.pool().peak_bytes());
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace convoy
