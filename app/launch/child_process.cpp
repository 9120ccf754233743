// SPDX-License-Identifier: Apache-2.0
#include "app/launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>

#include "app/launch/process_tree.h"
#include "layers/base/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace convoy {

namespace {

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.first == name; });
    if (!changed) result.push_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// The child between fork and exec: only calls that are safe there, since other threads may have held locks.
[[noreturn]] void become(char* const* argv, char* const* environment, int input, int output, int errors, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(input, STDIN_FILENO);
  if (output >= 0) ::dup2(output, STDOUT_FILENO);
  if (errors >= 0) ::dup2(errors, STDERR_FILENO);
  ::execvpe(argv[0], argv, environment);
  const char* reason = ::strerrordesc_np(errno);
  for (const char* text : {"convoy: cannot start ", static_cast<const char*>(argv[0]), ": ", reason, "\n"}) {
    const ssize_t ignored = ::write(STDERR_FILENO, text, ::strlen(text));
    static_cast<void>(ignored);
  }
  ::_exit(127);
}

ExitStatus status_of(int raw) {
  if (WIFSIGNALED(raw)) return {128 + WTERMSIG(raw), WTERMSIG(raw)};
  return {WEXITSTATUS(raw), 0};
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    ::close(ends_[0]);
    close_input();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int output() const { return ends_[0]; }
  [[nodiscard]] int input() const { return ends_[1]; }
  void close_input() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
  }

 private:
  std::array<int, 2> ends_{};
};

// Whether more may come.
bool drain(int descriptor, std::string& text) {
  constexpr std::size_t kMax = 1 << 20;
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count > 0 && text.size() < kMax) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const Options& options) {
  std::vector<std::string> words = argv;
  std::vector<std::string> variables = environment_with(options.environment);
  const std::vector<char*> word_pointers = pointers(words), variable_pointers = pointers(variables);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = ::getpid();
  StartedChildren& started = started_children();
  const std::lock_guard<std::mutex> guard(started.mutex);
  pid_ = ::fork();
  if (pid_ == 0) {
    become(word_pointers.data(), variable_pointers.data(), input, options.output, options.errors, parent);
  }
  const int reason = errno;
  if (input >= 0) ::close(input);
  if (pid_ > 0) started.pids.insert(pid_);
  if (pid_ < 0) fail("cannot start {}: {}", argv.front(), std::strerror(reason));
}

ChildProcess::~ChildProcess() {
  if (!poll()) kill_all();
  const auto deadline = std::chrono::steady_clock::now() + kKillLimit;
  while (!poll() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (ended_) return;
  StartedChildren& started = started_children();  // it hangs in the kernel: an orphan for the next kill_orphans()
  const std::lock_guard<std::mutex> guard(started.mutex);
  started.pids.erase(pid_);
}

std::optional<ExitStatus> ChildProcess::poll() {
  if (ended_) return ended_;
  int raw = 0;
  StartedChildren& started = started_children();
  const std::lock_guard<std::mutex> guard(started.mutex);
  const pid_t result = ::waitpid(pid_, &raw, WNOHANG);
  if (result == pid_) ended_ = status_of(raw);
  if (result < 0 && errno != EINTR) ended_ = ExitStatus{1, 0};
  if (ended_) started.pids.erase(pid_);
  return ended_;
}

void ChildProcess::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

void ChildProcess::kill_all() {
  if (ended_) return;
  kill_tree(pid_);
  ::kill(-pid_, SIGKILL);
}

Captured capture(const std::vector<std::string>& argv, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Captured result;
  Pipe output, errors;
  ChildProcess child(argv, {{}, output.input(), errors.input()});
  output.close_input();
  errors.close_input();
  std::array<pollfd, 2> files{pollfd{output.output(), POLLIN, 0}, pollfd{errors.output(), POLLIN, 0}};
  const std::array<std::string*, 2> texts{&result.output, &result.errors};
  const auto open = [](const pollfd& file) { return file.fd >= 0; };
  while (std::any_of(files.begin(), files.end(), open) && !result.timed_out) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      result.timed_out = true;
      break;
    }
    ::poll(files.data(), files.size(), static_cast<int>(left.count()));
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].fd >= 0 && files[i].revents != 0 && !drain(files[i].fd, *texts[i])) files[i].fd = -1;
    }
  }
  while (!child.poll() && !result.timed_out) {
    result.timed_out = std::chrono::steady_clock::now() > deadline;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (const auto status = child.poll()) result.status = *status;
  return result;
}

std::vector<std::string> split_command(const std::string& text, const std::string& what) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else {
        words.back() += c;
      }
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\n') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"' || c == '\'') {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') fail_usage("{}: a quote ({}) is not closed in: {}", what, quote, text);
  return words;
}

}  // namespace convoy
