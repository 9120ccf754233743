// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: checkpoints (io/checkpoint/checkpoint.h): reading, checking, and reading only the weights. Files without
// a seal get past it, so seeds have none; with one, nothing that was changed reaches the HDF5 library.
#include <cstddef>
#include <cstdint>
#include <string>

#include "io/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  const std::string file = fuzz::folder().write("checkpoint.h5", {data, size});
  static_cast<void>(checkpoint_problem(file));
  fuzz::allow_errors([&] { static_cast<void>(read_checkpoint(file)); });
  fuzz::allow_errors([&] { static_cast<void>(read_model_weights(file)); });
  fuzz::allow_errors([&] { static_cast<void>(check_datasets(file)); });
  return 0;
}
