// SPDX-License-Identifier: Apache-2.0
//
// The status board without MPI: notes are read whole while they are written, texts are cut, collectives are counted;
// and what /proc says about processes that really are stopped, dead or somebody else.
#include "parallel/watchdog/status_board.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "layers/base/process_state.h"
#include "parallel/base/wait_time.h"
#include "parallel/watchdog/activity.h"
#include "parallel/watchdog/own_status.h"

namespace convoy {

namespace {

// Every word of the note follows from its number, so that a mixture of two is seen.
StatusNote note_of(std::uint64_t number) {
  StatusNote note;
  note.number = number;
  note.time_ns = static_cast<std::int64_t>(number * 3);
  note.state = number % 2 == 0 ? RankState::kWaiting : RankState::kFinished;
  note.message = static_cast<std::uint32_t>(number);
  note.kind.fill(static_cast<char>(number % 127));
  note.what.fill(static_cast<char>(number % 113));
  note.communicator.fill(static_cast<char>(number % 101));
  return note;
}

bool same(const StatusNote& a, const StatusNote& b) {
  return a.number == b.number && a.time_ns == b.time_ns && a.state == b.state && a.message == b.message &&
         a.kind == b.kind && a.what == b.what && a.communicator == b.communicator;
}

// A child that sleeps; ended when the test is over.
struct Child {
  Child() : pid(fork()) {
    if (pid == 0) {
      for (;;) pause();
    }
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid;
};

// The state once it is the wanted one, or after ten seconds.
ProcessState state_becomes(const ProcessId& process, ProcessState wanted) {
  ProcessState state = ProcessState::kUnknown;
  for (int i = 0; i < 1000 && state != wanted; ++i) {
    state = process_state(process);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return state;
}

}  // namespace

TEST_CASE("a note is read whole while it is written over and over") {
  const auto row = std::make_unique<StatusRow>();
  constexpr std::uint64_t kNotes = 400'000;
  constexpr std::uint64_t kReads = 100;
  row->write(note_of(1));
  std::uint64_t written = 1;
  std::atomic<std::uint64_t> different = 0;
  std::atomic<bool> over = false;
  // Writes until the reader has seen enough notes: on a busy machine it may not run for a long time.
  std::thread writer([&] {
    while (written < kNotes || different < kReads) row->write(note_of(++written));
    over = true;
  });
  std::uint64_t last = 0;
  std::uint64_t torn = 0;
  std::uint64_t backwards = 0;
  while (!over) {
    const StatusNote note = row->read();
    if (note.state == RankState::kNothing) continue;  // overtaken a thousand times
    torn += same(note, note_of(note.number)) ? 0 : 1;
    backwards += note.number < last ? 1 : 0;
    different += note.number != last ? 1 : 0;
    last = note.number;
  }
  writer.join();
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(row->read().number == written);
}

TEST_CASE("an empty row says nothing, texts are cut to fit") {
  const auto row = std::make_unique<StatusRow>();
  CHECK(row->read().state == RankState::kNothing);
  CHECK(row->lateness() == Lateness::kNone);
  StatusNote note;
  note.number = 7;
  note.set("all_reduce", std::string(200, 'x'), "world");
  row->write(note);
  CHECK(row->read().to_string() == "all_reduce '" + std::string(63, 'x') + "' (collective 7 on 'world')");
  note.message = 1;
  note.set("send to rank 1", "activation", "stages");
  CHECK(note.to_string() == "send to rank 1 'activation' (message 7 on 'stages')");
  note.set("", "reading data", "");
  CHECK(note.to_string() == "reading data");
  note.kind.fill('k');  // as in a damaged message: without its end
  note.what.fill('w');
  note.communicator.fill('c');
  CHECK(note.to_string().size() == 32 + 64 + 32 + std::string(" '' (message 7 on '')").size());
}

TEST_CASE("collectives are counted for as many communicators as there is room for") {
  const auto row = std::make_unique<StatusRow>();
  CHECK(row->count(5) == -1);
  std::vector<int> places;
  for (int i = 0; i < StatusRow::kCommunicators; ++i) places.push_back(row->open(static_cast<std::uint64_t>(100 + i)));
  CHECK(row->open(999) == -1);
  row->set_count(places[3], 12);
  CHECK(row->count(103) == 12);
  CHECK(row->count(104) == 0);
  row->close(places[3]);
  CHECK(row->count(103) == -1);
  CHECK(row->open(999) == places[3]);
  CHECK(row->count(999) == 0);  // not what the one before had counted
}

TEST_CASE("communicators and activities write this process's row, and nothing without one") {
  note_activity("nowhere");
  const OperationName third{"all_reduce", 3, "loss"};
  {
    const WatchedCommunicator unheard("world", {0, 1});
    unheard.note(RankState::kStarted, third);
  }

  StatusRow row;
  attach_status(&row);
  note_activity("reading data");
  CHECK(row.read().to_string() == "reading data");
  CHECK(row.read().state == RankState::kWorking);
  const std::int64_t age = monotonic_ns() - row.read().time_ns;
  CHECK(age >= 0);
  CHECK(age < 10'000'000'000);
  {
    const WatchedCommunicator world("world", {0, 1});
    const std::uint64_t id = world.late(third, "", 1).communicator;
    const WatchedCommunicator again("world", {0, 1});
    CHECK(again.late(third, "", 1).communicator != id);
    row.set_lateness(Lateness::kLate);
    world.note(RankState::kStarted, third);
    CHECK(row.count(id) == 3);
    CHECK(row.lateness() == Lateness::kNone);  // it went on
    world.note(RankState::kStarted, {"send to rank 1", 9, "activation", true, 1, 0});
    CHECK(row.count(id) == 3);  // messages are no collectives
    world.note(RankState::kFinished, third);
    CHECK(row.read().to_string() == "all_reduce 'loss' (collective 3 on 'world')");
    const WatchedCommunicator alone("alone", {0});
    alone.note(RankState::kStarted, third);
    CHECK(row.read().state == RankState::kFinished);
    attach_status(nullptr);
    world.note(RankState::kStarted, third);
    CHECK(row.read().state == RankState::kFinished);
  }
}

TEST_CASE("names of operations") {
  CHECK(OperationName{"all_reduce", 12, "x"}.number_text() == "collective 12");
  CHECK(OperationName{"send to rank 1", 3, "x", true, 1, 7}.number_text() == "message 3, tag 7");
  CHECK(OperationName{"send to rank 1", 0, "x", true, 1}.number_text() == "first contact");
}

TEST_CASE("the state of a process: asleep, stopped, gone, somebody else" * doctest::test_suite("kernel")) {
  ProcessId process = own_process();
  CHECK(process.pid == getpid());
  CHECK(process_state(process) == ProcessState::kRunning);
  {
    const Child child;
    REQUIRE(child.pid > 0);
    process.pid = child.pid;
    CHECK(process_state(process) == ProcessState::kGone);  // the number is taken, by one that started later
    std::string text(4096, '\0');
    FILE* file = std::fopen(fmt::format("/proc/{}/stat", child.pid).c_str(), "r");
    REQUIRE(file != nullptr);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    process.start = parse_process_stat(text).start;
    CHECK(state_becomes(process, ProcessState::kSleeping) == ProcessState::kSleeping);
    kill(child.pid, SIGSTOP);
    CHECK(state_becomes(process, ProcessState::kStopped) == ProcessState::kStopped);
    ProcessId elsewhere = process;
    ++elsewhere.namespace_;
    CHECK(process_state(elsewhere) == ProcessState::kUnknown);
    kill(child.pid, SIGKILL);
    CHECK(state_becomes(process, ProcessState::kGone) == ProcessState::kGone);  // dead, not yet buried
  }
  CHECK(process_state(process) == ProcessState::kGone);
  CHECK(process_state({}) == ProcessState::kUnknown);
}

TEST_CASE("the text of /proc/PID/stat") {
  const std::string rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
  const auto parsed = [&](const std::string& start) { return parse_process_stat(start + rest); };
  CHECK(parsed("12 (convoy) T").state == ProcessState::kStopped);
  CHECK(parsed("12 (convoy) T").start == 4711);
  CHECK(parsed("12 (a) Z (b) 9) t").state == ProcessState::kTraced);
  CHECK(parsed("12 (convoy) D").state == ProcessState::kBlocked);
  CHECK(parsed("12 (convoy) Z").state == ProcessState::kGone);
  CHECK(parsed("12 (convoy) ?").state == ProcessState::kUnknown);
  for (const char* bad : {"", ")", "12 (convoy)", "12 (convoy) T", "12 (convoy) T 1 2 x", "\xff\xff"}) {
    CHECK(parse_process_stat(bad).start == 0);
    CHECK(parse_process_stat(bad).state == ProcessState::kUnknown);
  }
}

TEST_CASE("waits add up and never fall") {
  const double before = communication_wait_seconds();
  add_communication_wait(0.25);
  add_communication_wait(-1);
  CHECK(communication_wait_seconds() == doctest::Approx(before + 0.25));
}

}  // namespace convoy
