// SPDX-License-Identifier: Apache-2.0
//
// What the MPI test cases share: the one World of the program, a communicator with a deadline that no healthy
// test meets, and tensors. Every rank runs every test case in the same order.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "layers/base/error.h"
#include "parallel/comm/communicator.h"
#include "parallel/world/world.h"
#include "tests/parallel/test_tensors.h"

namespace convoy {

/// Defined by the main program.
World& test_world();

inline constexpr double kTestTimeout = 60;

struct MpiFixture {
  TestTensors tensors;
  std::unique_ptr<Communicator> comm = test_world().ranks().communicator(kTestTimeout, "test");
  int rank = comm->rank();
  int size = comm->size();
};

/// The message of the Error that `body` must throw.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace convoy
