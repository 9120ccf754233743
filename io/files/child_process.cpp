// SPDX-License-Identifier: Apache-2.0
//
// The child tells by one byte in a pipe that `body` has returned; wait(2) only says why when that byte does not come.
// Signals that a terminal or a scheduler sends to all processes of a job are for the parent: the child ignores them.
#include "io/files/trial.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>

namespace convoy {

namespace {

constexpr std::array kFatal = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGXCPU};

void set_limit(decltype(RLIMIT_CPU) which, rlim_t value) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, value);
  ::setrlimit(which, &limit);
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void prepare_child(pid_t parent, const TrialLimits& limits, std::size_t before) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (int number = 1; number < NSIG; ++number) {
    const bool fatal = std::find(kFatal.begin(), kFatal.end(), number) != kFatal.end();
    std::signal(number, fatal ? SIG_DFL : SIG_IGN);
  }
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_CPU, limits.cpu_seconds);
  if (before > 0) set_limit(RLIMIT_AS, before + limits.memory);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
}

// A byte from the pipe, or none at its end.
bool heard(int pipe) {
  char byte = 0;
  for (;;) {
    const ssize_t count = ::read(pipe, &byte, 1);
    if (count >= 0) return count == 1;
    if (errno != EINTR) return false;
  }
}

}  // namespace

TrialEnd run_trial(const std::function<void()>& body, const TrialLimits& limits) {
  const std::size_t before = address_space();
  const pid_t parent = ::getpid();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {TrialEnd::kNotTried};
  const pid_t child = ::fork();
  if (child == 0) {
    prepare_child(parent, limits, before);
    try {
      body();
    } catch (...) {  // as good an end as any: the parent meets it again
    }
    const char done = 1;
    ::_exit(::write(ends[1], &done, 1) == 1 ? 0 : 1);
  }
  ::close(ends[1]);
  const bool returned = child > 0 && heard(ends[0]);
  ::close(ends[0]);
  if (child < 0) return {TrialEnd::kNotTried};
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (returned) return {TrialEnd::kReturned};
  const int signal = ended == child && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return {signal == SIGXCPU ? TrialEnd::kTooLong : TrialEnd::kCrashed, signal};
}

}  // namespace convoy
