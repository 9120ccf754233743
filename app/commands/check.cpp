// SPDX-License-Identifier: Apache-2.0
//
// convoy check: reads a config as training would and prints it with the origin of every value; the output is itself
// a config.
#include <iostream>

#include "app/commands/commands.h"
#include "app/config_printer.h"
#include "app/config_reader.h"
#include "layers/base/error.h"

namespace convoy {

int check_command(const CheckArguments& arguments) {
  std::cout << resolved_toml(read_config(arguments.config, arguments.overrides), true) << std::flush;
  if (!std::cout) fail("the resolved config cannot be written to standard output");
  return 0;
}

}  // namespace convoy
