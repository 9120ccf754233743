// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: the config reader (app/build/read_config.h). What it accepts is printed, and must read back to the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "app/build/read_config.h"
#include "app/config/config_printer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convoy;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::allow_errors([&] {
    const Config config = parse_config(text, "fuzz.toml", {}, InputFiles::kTrust);
    const std::string printed = resolved_toml(config, true);
    Config again;
    try {
      again = parse_config(printed, "printed.toml", {}, InputFiles::kTrust);
    } catch (const Error&) {
      std::abort();  // what the program prints, it must be able to read
    }
    if (again != config) std::abort();
  });
  return 0;
}
