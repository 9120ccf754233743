// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: HDF5 data files (io/hdf5_dataset.h), at their root and in a group. Crashes and loops inside the HDF5
// library itself are known to be possible with files made to harm (tests/fuzz/README.md).
#include "io/hdf5_dataset.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  const std::string file = fuzz::folder().write("data.h5", {data, size});
  for (const std::string& source : {file, file + ":/train"}) {
    fuzz::allow_errors([&] { fuzz::use(Hdf5Dataset(source)); });
  }
  return 0;
}
