// SPDX-License-Identifier: Apache-2.0
//
// Excludes memory that Open MPI never frees from leak checks, so that leaks of convoy (communicators, requests,
// buffers) are still reported. Empty without AddressSanitizer.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace convoy {

/// During its lifetime allocations of this thread are not checked: MPI_Init and MPI_Finalize allocate in plug-ins that
/// are unloaded before the check, so that suppressions by name do not match.
struct MpiOwnMemory {
#if defined(__SANITIZE_ADDRESS__)
  __lsan::ScopedDisabler disabler;
#endif
};

/// Keeps PMIx, which also allocates on its own thread, mapped until the check, so that suppressions match its name.
void keep_pmix_mapped();

}  // namespace convoy
