// SPDX-License-Identifier: Apache-2.0
#include "io/files/run_self.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

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

// The path of this program: emulators (valgrind, qemu) answer the link correctly, whereas execve() of it runs the
// emulator. A program whose file was replaced has no path; the kernel still executes the link.
std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return !error && std::filesystem::exists(path, error) ? path.string() : "/proc/self/exe";
}

// The child has /dev/null as its standard streams, default signal dispositions, and all signals blocked until
// prepare_child().
pid_t spawn(char* const* arguments) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&actions) != 0) return -1;
  if (::posix_spawnattr_init(&attributes) != 0) {
    ::posix_spawn_file_actions_destroy(&actions);
    return -1;
  }
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  }
  sigset_t all;
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &all);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  if (::posix_spawn(&child, own_path().c_str(), &actions, &attributes, arguments, environ) != 0) child = -1;
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return child;
}

constexpr std::chrono::seconds kKillLimit{10};

// The child when it has ended, 0 when it has not by then, -1 when it is not there.
pid_t wait_until(pid_t child, std::chrono::steady_clock::time_point deadline, int& status) {
  std::chrono::microseconds pause{200};
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return ended;
    if (std::chrono::steady_clock::now() >= deadline) return 0;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(10));
  }
}

}  // namespace

ChildEnd run_self(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  std::string program = "convoy";
  std::vector<std::string> words = arguments;
  std::vector<char*> pointers{program.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = spawn(pointers.data());
  if (child < 0) return {ChildEnd::kNotStarted};
  int status = 0;
  const pid_t ended = wait_until(child, std::chrono::steady_clock::now() + limit, status);
  if (ended == 0) {
    ::kill(child, SIGKILL);
    static_cast<void>(wait_until(child, std::chrono::steady_clock::now() + kKillLimit, status));
    return {ChildEnd::kNoAnswer};
  }
  if (ended != child) return {ChildEnd::kCrashed};  // another thread has reaped its status
  if (WIFEXITED(status)) return {ChildEnd::kExited, WEXITSTATUS(status)};
  const int signal = WTERMSIG(status);
  return {signal == SIGXCPU ? ChildEnd::kTooLong : ChildEnd::kCrashed, signal};
}

void prepare_child(const ChildLimits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int number = 1; number < NSIG; ++number) {
    const bool fatal = std::find(kFatal.begin(), kFatal.end(), number) != kFatal.end();
    std::signal(number, fatal ? SIG_DFL : SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_CPU, limits.cpu_seconds);
  if (const std::size_t before = address_space(); before > 0) set_limit(RLIMIT_AS, before + limits.memory);
}

}  // namespace convoy
