// SPDX-License-Identifier: Apache-2.0
#include "layers/base/process_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "layers/base/file_text.h"

namespace convoy {

namespace {

ProcessState state_of_letter(char letter) {
  switch (letter) {
    case 'R': return ProcessState::kRunning;
    case 'S': return ProcessState::kSleeping;
    case 'T': return ProcessState::kStopped;
    case 't': return ProcessState::kTraced;
    case 'D': return ProcessState::kBlocked;
    case 'Z':
    case 'X': return ProcessState::kGone;
    default: return ProcessState::kUnknown;
  }
}

std::uint64_t own_namespace() {
  struct stat entry {};
  return stat("/proc/self/ns/pid", &entry) == 0 ? entry.st_ino : 0;
}

}  // namespace

// "PID (NAME) STATE PPID ...": the name may hold blanks and brackets; the start is the 22nd field.
ProcessStat parse_process_stat(std::string_view text) {
  constexpr int kFieldsBetween = 18;  // after the state, before the start
  const auto bracket = text.rfind(')');
  if (bracket == std::string_view::npos || bracket + 2 >= text.size()) return {};
  std::istringstream rest{std::string(text.substr(bracket + 2))};
  char letter = 0;
  std::int64_t skipped = 0;
  ProcessStat result;
  rest >> letter;
  for (int i = 0; i < kFieldsBetween; ++i) rest >> skipped;
  if (!(rest >> result.start)) return {};
  result.state = state_of_letter(letter);
  return result;
}

ProcessId own_process() {
  return {getpid(), parse_process_stat(file_text("/proc/self/stat").value_or("")).start, own_namespace()};
}

ProcessState process_state(const ProcessId& process) {
  if (process.start == 0 || process.namespace_ == 0 || process.namespace_ != own_namespace()) {
    return ProcessState::kUnknown;
  }
  const std::string folder = fmt::format("/proc/{}", process.pid);
  const std::string text = file_text(folder + "/stat").value_or("");  // it may end between open() and read()
  if (text.empty()) return access(folder.c_str(), F_OK) == 0 ? ProcessState::kUnknown : ProcessState::kGone;
  const ProcessStat found = parse_process_stat(text);
  if (found.start == 0) return ProcessState::kUnknown;
  return found.start == process.start ? found.state : ProcessState::kGone;  // else the number was given again
}

}  // namespace convoy
