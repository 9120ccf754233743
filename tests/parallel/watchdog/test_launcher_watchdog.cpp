// SPDX-License-Identifier: Apache-2.0
//
// A process whose launcher ends: it ends too, also when it is stopped, and says why if it is to speak.
#include "parallel/watchdog/launcher_watchdog.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

namespace convoy {

namespace {

// All that comes through the pipe until its other end is closed everywhere, or "open" when that takes ten seconds.
std::string read_to_end(int from) {
  std::string text;
  for (;;) {
    pollfd wanted{from, POLLIN, 0};
    if (poll(&wanted, 1, 10'000) <= 0) return "open";
    std::array<char, 256> part{};
    const ssize_t got = read(from, part.data(), part.size());
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

// What a rank prints from the moment on that its launcher ends; its end closes the pipe.
std::string last_words(bool speaks, bool stopped, pid_t& launcher) {
  std::array<int, 2> words{};
  std::array<int, 2> ready{};
  REQUIRE(pipe(words.data()) == 0);
  REQUIRE(pipe(ready.data()) == 0);
  launcher = fork();
  REQUIRE(launcher >= 0);
  if (launcher == 0) {
    if (const pid_t rank = fork(); rank == 0) {
      alarm(30);  // nothing is left when the watch fails
      dup2(words[1], STDERR_FILENO);
      const LauncherWatchdog watch(speaks);
      const char done = 1;
      if (write(ready[1], &done, 1) != 1) _exit(3);
      if (stopped) raise(SIGSTOP);
      for (;;) pause();
    } else {
      char done = 0;
      if (rank < 0 || read(ready[0], &done, 1) != 1) _exit(3);
      if (stopped) waitpid(rank, nullptr, WUNTRACED);
      _exit(0);
    }
  }
  close(words[1]);
  close(ready[1]);
  std::string text = read_to_end(words[0]);
  close(words[0]);
  close(ready[0]);
  int status = 0;
  waitpid(launcher, &status, 0);
  CHECK(status == 0);
  return text;
}

}  // namespace

TEST_CASE("a rank ends with its launcher") {
  for (const bool stopped : {false, true}) {
    CAPTURE(stopped);
    pid_t launcher = 0;
    const std::string text = last_words(true, stopped, launcher);
    CHECK(text == fmt::format("convoy: error: the launcher (pid {}) has gone; the ranks on this node end\n", launcher));
    CHECK(last_words(false, stopped, launcher).empty());
  }
}

TEST_CASE("while the launcher is there the watch does nothing, and ends at once") {
  for (int i = 0; i < 3; ++i) const LauncherWatchdog watch(true);
  CHECK(getppid() > 0);
}

}  // namespace convoy
