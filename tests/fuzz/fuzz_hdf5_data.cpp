// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: HDF5 data files (io/data/hdf5_dataset.h), at their root and in a group. What the HDF5 library itself
// crashes on does so in a child process (io/hdf5/validation.h).
#include <cstddef>
#include <cstdint>
#include <string>

#include "io/data/hdf5_dataset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  const std::string file = fuzz::folder().write("data.h5", {data, size});
  for (const std::string& source : {file, file + ":/train"}) {
    fuzz::allow_errors([&] { fuzz::use(Hdf5Dataset(source)); });
  }
  return 0;
}
