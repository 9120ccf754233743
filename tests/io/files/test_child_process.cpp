// SPDX-License-Identifier: Apache-2.0
//
// The child process in which a library may crash: each way to end, what it may not reach.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>

#include "io/files/trial.h"

using namespace convoy;

namespace {

void end_by(int number) {
  const TrialEnd end = run_trial([&] { ::raise(number); });
  CHECK(end.kind == TrialEnd::kCrashed);
  CHECK(end.signal == number);
}

}  // namespace

TEST_CASE("a trial says how its child ended") {
  CHECK(run_trial([] {}).kind == TrialEnd::kReturned);
  CHECK(run_trial([] { throw std::runtime_error("no harm"); }).kind == TrialEnd::kReturned);
  end_by(SIGSEGV);
  end_by(SIGABRT);
  end_by(SIGKILL);
  const TrialEnd left = run_trial([] { ::_exit(0); });  // not by returning
  CHECK(left.kind == TrialEnd::kCrashed);
  CHECK(left.signal == 0);
}

TEST_CASE("a trial that comes to no end is ended, and nothing is left of it") {
  TrialLimits limits;
  limits.cpu_seconds = 1;
  volatile bool turning = true;
  const TrialEnd end = run_trial(
      [&] {
        while (turning) {
        }
      },
      limits);
  CHECK(end.kind == TrialEnd::kTooLong);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("signals to all processes of a job do not end a trial") {
  const TrialEnd end = run_trial([] {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::raise(number);
  });
  CHECK(end.kind == TrialEnd::kReturned);
}

TEST_CASE("a trial gets no more memory than it may have") {
  const auto map = [](std::size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
           MAP_FAILED;
  };
  TrialLimits limits;
  limits.memory = std::size_t{256} << 20;
  CHECK(run_trial([&] { map(std::size_t{64} << 20) ? void() : ::_exit(1); }, limits).kind == TrialEnd::kReturned);
  CHECK(run_trial([&] { map(std::size_t{512} << 20) ? void() : ::_exit(1); }, limits).kind == TrialEnd::kCrashed);
}

TEST_CASE("a trial changes nothing here") {
  int value = 1;
  CHECK(run_trial([&] { value = 2; }).kind == TrialEnd::kReturned);
  CHECK(value == 1);
}
