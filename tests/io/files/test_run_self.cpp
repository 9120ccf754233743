// SPDX-License-Identifier: Apache-2.0
//
// This program in a child process: each way to end, and what is out of its reach. What the children do is in
// tests/io/main.cpp.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>

#include "io/files/run_self.h"

using namespace convoy;

namespace {

void ends_by(int number) {
  const ChildEnd end = run_self({"child", "signal", std::to_string(number)});
  CHECK(end.kind == ChildEnd::kCrashed);
  CHECK(end.status == number);
}

void exits_with(int code, const std::string& what, const std::string& argument) {
  const ChildEnd end = run_self({"child", what, argument});
  CHECK(end.kind == ChildEnd::kExited);
  CHECK(end.status == code);
}

}  // namespace

TEST_CASE("how a child ended is known") {
  exits_with(0, "exit", "0");
  exits_with(7, "exit", "7");
  ends_by(SIGSEGV);
  ends_by(SIGABRT);
  ends_by(SIGKILL);
}

TEST_CASE("a child that does not end is ended, and nothing is left of it") {
  CHECK(run_self({"child", "spin", ""}).kind == ChildEnd::kTooLong);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("a child that waits for ever is ended, and nothing is left of it") {
  CHECK(run_self({"child", "sleep", ""}, std::chrono::milliseconds(50)).kind == ChildEnd::kNoAnswer);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("signals to all processes of a job do not end a child") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    exits_with(0, "signal", std::to_string(number));
  }
}

TEST_CASE("a child gets no more memory than its limit" * doctest::test_suite("kernel")) {
  exits_with(0, "map", "64");
  exits_with(1, "map", "512");
}
