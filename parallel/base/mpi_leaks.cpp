// SPDX-License-Identifier: Apache-2.0
#include "parallel/base/mpi_leaks.h"

#if defined(__SANITIZE_ADDRESS__)

#include <dlfcn.h>

// Read by the leak checker, in every program that has a World. PMIx keeps memory to the end; a communicator is not
// freed while an exception passes, because freeing is collective and other ranks may be gone.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libpmix.so\nleak:ompi_comm_set\n"; }

namespace convoy {

void keep_pmix_mapped() { dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE); }

}  // namespace convoy

#else

namespace convoy {

void keep_pmix_mapped() {}

}  // namespace convoy

#endif
