// SPDX-License-Identifier: Apache-2.0
//
// Keeps the leak checker of sanitized builds off what Open MPI never frees, so that it still sees what convoy
// does not free: communicators, requests, buffers. Without AddressSanitizer all of this is empty.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace convoy {

/// While one of these lives, what this thread allocates is not looked for: MPI's start and end allocate from
/// plug-ins that are unloaded by the time of the check, which no suppression by name can match.
struct MpiOwnMemory {
#if defined(__SANITIZE_ADDRESS__)
  __lsan::ScopedDisabler disabler;
#endif
};

/// Keeps PMIx, which also allocates on a thread of its own, mapped until the check, so that its name is known.
void keep_pmix_mapped();

}  // namespace convoy
