// SPDX-License-Identifier: Apache-2.0
//
// The program. Everything else is in libraries, so that tests reach it.
#include "app/commands/cli.h"
#include "io/hdf5/validation.h"

int main(int argc, char** argv) {
  convoy::hdf5::validate_if_child(argc, argv);
  return convoy::run_cli(argc, argv);
}
