// SPDX-License-Identifier: Apache-2.0
//
// Reasons to stop early: signals, the user's limit, the end of the job. Each signal test runs in a child process.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "app/train/job_end.h"
#include "app/train/stop.h"
#include "layers/base/error.h"

using namespace convoy;

namespace {

constexpr std::chrono::milliseconds kLater{1200};  // beyond the second in which signals count as copies

// The status of a child process that runs `body` with the usual stop signals; `body` returns whether all is well.
template <class Body>
int status_of(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    const StopRequest stop({"SIGUSR2", "SIGTERM"}, std::nullopt);
    _exit(body(stop) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// As a launcher sends it: to the process. A thread other than this one handles it.
void send(int signal) {
  kill(getpid(), signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Whether it is signalled within ten seconds.
bool becomes_signalled(const StopRequest& stop) {
  for (int i = 0; i < 10000 && !stop.signalled(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return stop.signalled();
}

bool blocked_here(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

Environment environment(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("one stop signal is remembered, copies of it change nothing") {
  const int status = status_of([](const StopRequest& stop) {
    const bool before = stop.signalled();
    send(SIGUSR2);
    send(SIGUSR2);
    send(SIGTERM);
    return !before && becomes_signalled(stop);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a second stop signal ends the process at once, also another one") {
  for (const int second : {SIGUSR2, SIGTERM}) {
    const int status = status_of([second](const StopRequest& stop) {
      send(SIGUSR2);
      const bool first = becomes_signalled(stop);
      std::this_thread::sleep_for(kLater);
      send(second);
      std::this_thread::sleep_for(std::chrono::seconds(10));
      return first;
    });
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == second);
  }
}

// A handler's frame on the stack of a oneDNN product overwrote the heap: "double free or corruption".
TEST_CASE("threads that compute handle no stop signal") {
  const int status = status_of([](const StopRequest& stop) {
    bool in_new_thread = false;
    std::thread([&] { in_new_thread = blocked_here(SIGUSR2) && blocked_here(SIGTERM); }).join();
    const bool here = blocked_here(SIGUSR2) && blocked_here(SIGTERM) && !blocked_here(SIGINT);
    send(SIGTERM);
    return here && in_new_thread && becomes_signalled(stop);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the margin before the job's end grows with steps and checkpoints") {
  using Seconds = StopRequest::Seconds;
  StopRequest stop({}, std::nullopt);
  CHECK_FALSE(stop.time_is_up());
  CHECK(stop.margin().count() == doctest::Approx(30));
  stop.set_job_end(Seconds(60));
  CHECK_FALSE(stop.time_is_up());
  stop.observe_boundary(Seconds(10));
  stop.observe_boundary(Seconds(2));
  CHECK(stop.margin().count() == doctest::Approx(50));
  CHECK_FALSE(stop.time_is_up());
  stop.observe_checkpoint(Seconds(6));
  CHECK(stop.margin().count() == doctest::Approx(62));
  CHECK(stop.time_is_up());
}

TEST_CASE("long work before the training: a signal is an error with exit code 75") {
  const int status = status_of([](const StopRequest& stop) {
    stop.check("staging the data");
    send(SIGTERM);
    if (!becomes_signalled(stop)) return false;
    try {
      stop.check("staging the data");
    } catch (const Error& error) {
      return error.code() == ExitCode::kStopped &&
             std::string(error.what()).starts_with("stopped while staging the data (signal)");
    }
    return false;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("run.max_time counts from the start, without a margin") {
  StopRequest stop({}, std::chrono::seconds(1));
  CHECK_FALSE(stop.time_is_up());
  std::this_thread::sleep_for(kLater);
  CHECK(stop.time_is_up());
}

TEST_CASE("the job's end is asked of Slurm where its variable does not say it") {
  std::string asked;
  std::optional<std::string> answer;
  const CommandOutput squeue = [&](const std::string& command) {
    asked = command;
    return answer;
  };
  const auto seconds = [&](std::map<std::string, std::string> variables) -> double {
    const auto left = time_left_in_job(environment(std::move(variables)), squeue);
    return left ? left->count() : -1;
  };
  CHECK(seconds({}) == -1);  // not in a job
  CHECK(asked.empty());
  const std::map<std::string, std::string> job{{"SLURM_JOB_ID", "41"}};
  CHECK(seconds(job) == -1);  // squeue fails
  CHECK(asked.find("--jobs=41") != std::string::npos);
  const std::map<std::string, double> answers{{"1-02:03:04\n", 93784},
                                              {"02:03:04", 7384},
                                              {" 3:04 ", 184},
                                              {"0:07", 7},
                                              {"UNLIMITED\n", -1},
                                              {"364-23:59:58", -1},
                                              {"INVALID", -1},
                                              {"", -1},
                                              {"59", -1},
                                              {"1:2:3:4", -1},
                                              {"a:10", -1},
                                              {"-5:00", -1}};
  for (const auto& [text, expected] : answers) {
    CAPTURE(text);
    answer = text;
    CHECK(seconds(job) == expected);
  }
  asked.clear();
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const double left = seconds({{"SLURM_JOB_ID", "41"}, {"SLURM_JOB_END_TIME", std::to_string(now.count() + 600)}});
  CHECK(left <= 600);
  CHECK(left > 590);  // the test itself takes no ten seconds between two lines
  CHECK(asked.empty());
  CHECK(seconds({{"SLURM_JOB_ID", "41"}, {"SLURM_JOB_END_TIME", std::to_string(now.count() + 364 * 86400)}}) == -1);
  CHECK(seconds({{"SLURM_JOB_ID", "41; reboot"}}) == -1);
  CHECK(asked.empty());
}

TEST_CASE("a command's output comes back, unless it failed") {
  CHECK(command_output("printf 'a b\\n'") == "a b\n");
  CHECK_FALSE(command_output("printf a; exit 3"));
}
