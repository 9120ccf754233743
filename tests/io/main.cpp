// SPDX-License-Identifier: Apache-2.0
//
// The tests as a program that is also its own child process (io/files/run_self.h, io/hdf5/validation.h).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <csignal>
#include <cstddef>
#include <string>

#include "io/files/run_self.h"
#include "io/hdf5/validation.h"

namespace {

// What children of test_run_self.cpp do: child exit CODE, signal NUMBER, spin "", sleep "", map MIB.
int child(const std::string& what, const std::string& argument) {
  convoy::prepare_child({.cpu_seconds = 1, .memory = std::size_t{256} << 20});
  if (what == "signal") ::raise(std::stoi(argument));
  if (what == "sleep") ::pause();
  volatile bool turning = what == "spin";
  while (turning) {
  }
  if (what == "map") {
    const auto bytes = std::stoul(argument) << 20;
    const void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? 1 : 0;
  }
  return what == "exit" ? std::stoi(argument) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  convoy::hdf5::validate_if_child(argc, argv);
  if (argc == 4 && std::string(argv[1]) == "child") return child(argv[2], argv[3]);
  return doctest::Context(argc, argv).run();
}
