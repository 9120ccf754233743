// SPDX-License-Identifier: Apache-2.0
//
// The lock file: one owner at a time, whatever dies when. Owners are processes of their own here, since a lock outlives
// its process only when that is killed.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "io/files/lock_file.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
using namespace std::chrono_literals;

namespace {

// Counters that forked processes share.
struct Shared {
  std::atomic<int> inside{0}, most_inside{0}, turns{0}, ready{0};
};

class SharedMemory {
 public:
  SharedMemory()
      : memory_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        shared_(new (memory_) Shared) {}
  ~SharedMemory() { ::munmap(memory_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  Shared* operator->() const { return shared_; }

 private:
  void* memory_;
  Shared* shared_;
};

pid_t in_process(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);  // nothing may hang
    int code = 99;
    try {
      code = body();
    } catch (...) {
      code = 98;
    }
    ::_exit(code);  // as a kill: no destructor releases anything
  }
  return pid;
}

int exit_code(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::unique_ptr<LockFile> wait_for_lock(LockAttempt& attempt, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < deadline) {
    if (auto lock = attempt.poll()) return lock;
    std::this_thread::sleep_for(1ms);
  }
  return nullptr;
}

// As a process on another machine writes it into its lock.
nlohmann::json owner_elsewhere() {
  return {{"host", "far"},  {"pid", 1},   {"start_time", 2}, {"pid_namespace", 3},
          {"boot_id", "x"}, {"note", ""}, {"token", "abc"}};
}

}  // namespace

TEST_CASE("a lock is held, named and released") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  LockAttempt first(path, "slots=2"), second(path);
  auto lock = first.poll();
  REQUIRE(lock);
  CHECK(!second.poll());
  CHECK(second.holder().process == this_process());
  CHECK(second.holder().note == "slots=2");
  CHECK(second.holder().token == lock->token());
  CHECK(contains(second.holder().to_string(), std::to_string(::getpid())));
  REQUIRE(second.look());
  CHECK(second.look()->token == lock->token());
  lock.reset();
  CHECK(!std::filesystem::exists(path));
  CHECK(!second.look());
  CHECK(second.poll());
}

TEST_CASE("a lock whose process has ended is taken over at once") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  CHECK(exit_code(in_process([&] { return LockAttempt(path).poll().release() != nullptr ? 0 : 1; })) == 0);
  REQUIRE(std::filesystem::exists(path));
  LockAttempt attempt(path, "", 1h);  // so the heartbeat cannot be the reason
  CHECK(attempt.poll());
}

TEST_CASE("a stopped owner on this machine keeps its lock" * doctest::test_suite("kernel")) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  const SharedMemory shared;
  const pid_t owner = in_process([&] {
    const auto lock = LockAttempt(path).poll();
    shared->ready = 1;
    std::this_thread::sleep_for(30s);
    return 0;
  });
  while (shared->ready == 0) std::this_thread::sleep_for(1ms);
  ::kill(owner, SIGSTOP);
  LockAttempt attempt(path, "", 1ms);
  CHECK(!wait_for_lock(attempt, 50ms));
  ::kill(owner, SIGKILL);
  CHECK(exit_code(owner) == 128 + SIGKILL);
  CHECK(wait_for_lock(attempt, 5s));
}

TEST_CASE("an owner elsewhere is stale when its heartbeat stands still, and not before") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  nlohmann::json other = owner_elsewhere();
  write_text(path, other.dump());
  LockAttempt attempt(path, "", 300ms);
  CHECK(!attempt.poll());
  CHECK(attempt.holder().to_string() == "far, pid 1");
  for (int beat = 0; beat < 20; ++beat) {  // 600 ms of life
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
    CHECK(!attempt.poll());
    std::this_thread::sleep_for(30ms);
  }
  CHECK(wait_for_lock(attempt, 5s));
}

TEST_CASE("time that the observer was away does not count, and fresh looks must follow it") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  nlohmann::json other = owner_elsewhere();
  write_text(path, other.dump());
  std::chrono::steady_clock::time_point now{1h};
  LockAttempt attempt(path, "", LockAttempt::kStaleSeconds, [&] { return now; });
  const auto holds_after = [&](std::chrono::milliseconds time) {
    now += time;
    return attempt.look().has_value();
  };
  CHECK(holds_after(0ms));
  CHECK(holds_after(1h));  // the observer was suspended: perhaps the whole machine, or the file server, was
  for (int i = 0; i < 13; ++i) CHECK(holds_after(1s));
  CHECK(holds_after(500ms));
  CHECK(holds_after(1h));  // now 15 s were watched, but the last looks are old
  CHECK(holds_after(1s));
  CHECK(holds_after(1s));
  CHECK(!holds_after(1s));
  other["note"] = "beats again";
  write_text(path, other.dump());
  CHECK(holds_after(1s));
  for (int i = 0; i < 140; ++i) CHECK(holds_after(100ms));
  CHECK(holds_after(900ms));
  CHECK(!holds_after(100ms));
}

TEST_CASE("a look that is blocked itself does not count") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  nlohmann::json other = owner_elsewhere();
  write_text(path, other.dump());
  std::chrono::steady_clock::time_point now{1h};
  std::chrono::seconds blocked{0};
  LockAttempt attempt(path, "", LockAttempt::kStaleSeconds, [&] { return now += blocked; });  // twice a look
  CHECK(attempt.look());
  blocked = 20s;
  for (int i = 0; i < 30; ++i) CHECK(attempt.look());
}

TEST_CASE("a file that is no lock is not taken before its time") {
  const TemporaryFolder folder;
  for (const std::string text : {"", "no lock at all", "{\"host\":1}", "[]"}) {
    const std::string path = folder / "b.lock";
    write_text(path, text);
    LockAttempt attempt(path, "", 100ms);
    CHECK(!attempt.poll());
    CHECK(attempt.holder().to_string() == "somebody unknown");
    CHECK(wait_for_lock(attempt, 5s));
  }
}

TEST_CASE("an owner learns that its lock is lost, and leaves the new owner's alone") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  std::atomic<int> calls = 0;
  std::string reason;
  auto lock = LockAttempt(path).poll([&](const std::string& why) {
    reason = why;
    ++calls;
  });
  REQUIRE(lock);
  std::filesystem::remove(path);
  LockAttempt next(path);
  const auto other = next.poll();
  REQUIRE(other);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (calls == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  CHECK(calls == 1);
  CHECK(lock->lost());
  CHECK(contains(reason, "now held by"));
  lock.reset();
  CHECK(std::filesystem::exists(path));
  CHECK(!other->lost());
}

TEST_CASE("a lock in a folder that is not there is an Error") {
  const TemporaryFolder folder;
  LockAttempt attempt(folder / "nowhere/a.lock");
  CHECK(contains(error_of([&] { (void)attempt.poll(); }), "cannot make the lock"));
}

// Every racer becomes the owner once, dies without releasing, and so leaves a stale lock to the others.
TEST_CASE("racers for stale locks: never two owners" * doctest::test_suite("kernel")) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.lock";
  constexpr int kRounds = 40, kRacers = 6;
  const SharedMemory shared;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<pid_t> racers;
    for (int i = 0; i < kRacers; ++i) {
      racers.push_back(in_process([&] {
        LockAttempt attempt(path);
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        while (std::chrono::steady_clock::now() < deadline) {
          const auto* lock = attempt.poll().release();  // without a pause, to meet in the middle of a take-over
          if (lock == nullptr) continue;
          const int inside = ++shared->inside;
          if (inside > shared->most_inside) shared->most_inside = inside;
          std::this_thread::sleep_for(500us);
          ++shared->turns;
          --shared->inside;
          return 0;
        }
        return 1;
      }));
    }
    for (const pid_t racer : racers) CHECK(exit_code(racer) == 0);
  }
  CHECK(shared->most_inside.load() == 1);
  CHECK(shared->turns.load() == kRounds * kRacers);
}
