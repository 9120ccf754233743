// SPDX-License-Identifier: Apache-2.0
#include "app/commands/version_text.h"

#include <fmt/format.h>

#include "app/base/version.h"
#include "app/build/build_backend.h"
#include "io/hdf5/hdf5.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "parallel/world/world.h"

namespace convoy {

std::string version_text() {
  std::string cuda;
  for (const LibraryVersion& library : gpu_libraries()) {
    cuda += cuda.empty() ? library.found : fmt::format(", {} {}", library.name, library.found);  // CUDA itself is first
  }
  return fmt::format("convoy   {}\ncompiler {}\nMPI      {}\nHDF5     {}\nCPU      {}\nCUDA     {}\n",
                     program_version(), compiler_version(), World::mpi_library().version, hdf5::library_version(),
                     OnednnBackend::library_description(), cuda.empty() ? "off" : cuda);
}

}  // namespace convoy
