// SPDX-License-Identifier: Apache-2.0
//
// convoy watch: a run that goes on elsewhere, or has ended, on this terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/commands/commands.h"
#include "app/watch/watched_run.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kInterval{1};
constexpr std::size_t kColumns = 80, kRows = 24;  // of what is no terminal

bool can_redraw() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::vector<std::string> view_of(const WatchedRun& run) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
  return watch_view(run, known ? size.ws_col - 1U : kColumns, known ? size.ws_row - 1U : kRows);
}

}  // namespace

int watch_command(const WatchArguments& arguments) {
  WatchedRun run(arguments.run);
  if (arguments.once || !can_redraw()) {
    for (const std::string& line : view_of(run)) std::cout << line << "\n";
    std::cout << std::flush;
    return 0;
  }
  for (std::cout << "\x1b[2J";; std::this_thread::sleep_for(kInterval), run.refresh()) {
    std::cout << "\x1b[H";
    for (const std::string& line : view_of(run)) std::cout << line << "\x1b[K\n";
    std::cout << "\x1b[J" << std::flush;
    if (run.state() == WatchedState::kEnded) return 0;
  }
}

}  // namespace convoy
