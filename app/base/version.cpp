// SPDX-License-Identifier: Apache-2.0
#include "app/base/version.h"

#include <fmt/format.h>

namespace convoy {

std::string program_version() { return CONVOY_VERSION; }

std::string compiler_version() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace convoy
