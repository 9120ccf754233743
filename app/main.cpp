// SPDX-License-Identifier: Apache-2.0
//
// The program. Everything else is in libraries, so that tests reach it.
#include "app/commands/cli.h"

int main(int argc, char** argv) { return convoy::run_cli(argc, argv); }
