// SPDX-License-Identifier: Apache-2.0
//
// The words of the report about a late operation, for every cause that it knows: rows in, text out.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/watchdog/hang_report.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace convoy {

namespace {

struct Job {
  explicit Job(int size) {
    for (int rank = 0; rank < size; ++rank) {
      operation.members.push_back(rank);
      RankStatus& status = ranks.emplace_back();
      status.world_rank = rank;
      status.host = rank < 2 ? "n1" : "n2";
      status.pid = 4700 + rank;
      status.heard = true;
      status.state = ProcessState::kSleeping;
      status.count = 1204;
      status.age = 30;
      last(rank, RankState::kWaiting, "all_reduce", "gradient bucket 3", 1204);
    }
    operation.label = "LABEL";
    operation.collective = 1204;
    operation.waited = 30;
  }

  RankStatus& last(int rank, RankState state, const std::string& kind, const std::string& what, std::uint64_t number) {
    RankStatus& status = ranks[static_cast<std::size_t>(rank)];
    status.note.state = state;
    status.note.number = number;
    status.note.set(kind, what, "replicas");
    return status;
  }
  // A rank that finished the operation before and has not started this one.
  RankStatus& missing(int rank) {
    RankStatus& status = last(rank, RankState::kFinished, "all_reduce", "step loss", 311);
    status.count = 1203;
    status.age = 31.24;
    return status;
  }
  [[nodiscard]] std::string report(int world_rank = 0) const { return hang_report(operation, ranks, world_rank); }

  LateOperation operation;
  std::vector<RankStatus> ranks;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int lines_of(const std::string& text, const std::string& start) {
  int count = 0;
  for (std::size_t at = text.find("\n" + start); at != std::string::npos; at = text.find("\n" + start, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a stopped rank: the whole text") {
  Job job(4);
  job.missing(2).state = ProcessState::kStopped;
  CHECK(job.report() ==
        "LABEL timed out: world rank 0 (n1) waited 30 s for it\n"
        "  world rank 2 (n2, pid 4702) has not come: it is stopped (SIGSTOP); last: finished all_reduce 'step loss' "
        "(collective 311 on 'replicas'), 31.2 s ago\n"
        "2 other ranks have come.\n"
        "What stopped it (kill -STOP, Ctrl-Z, a debugger, a scheduler that suspends) must stop all ranks or none: "
        "`kill -CONT 4702` on n2 within parallel.timeout would have let the run continue. Start it again");
}

TEST_CASE("each condition of a rank that has not come has its words and its remedy") {
  const auto report = [](const auto& change) {
    Job job(2);
    change(job.missing(1));
    return job.report();
  };
  const auto state = [&](ProcessState its) { return report([&](RankStatus& rank) { rank.state = its; }); };
  CHECK(contains(state(ProcessState::kGone), "has not come: its process is gone; last: finished"));
  CHECK(contains(state(ProcessState::kGone), "`dmesg -T | grep -i kill` on n1"));
  CHECK(contains(state(ProcessState::kTraced), "has not come: a debugger holds it; last:"));
  CHECK(contains(state(ProcessState::kTraced), "Continue in the debugger"));
  CHECK(contains(state(ProcessState::kBlocked), "it hangs in the kernel (a disk or a network file system); last:"));
  CHECK(contains(state(ProcessState::kBlocked), "See what ails the storage"));
  CHECK(contains(state(ProcessState::kRunning), "has not come: it is running; last:"));
  CHECK(contains(state(ProcessState::kSleeping), "has not come: it sleeps; last:"));
  CHECK(contains(state(ProcessState::kUnknown), "has not come: last: finished"));
  CHECK(contains(state(ProcessState::kUnknown), "If it is only slow, raise parallel.timeout"));
  CHECK(contains(report([](RankStatus& rank) { rank.note = {}; }), "it has taken part in nothing yet"));
  CHECK(contains(report([](RankStatus& rank) {
                   rank.note.state = RankState::kWorking;
                   rank.note.set("", "reading data", "");
                 }),
                 "last: reading data, since 31.2 s"));
  CHECK(contains(report([](RankStatus& rank) { rank.note.state = RankState::kStarted; }),
                 "last: started all_reduce 'step loss' (collective 311 on 'replicas'), 31.2 s ago"));
  CHECK(contains(report([](RankStatus& rank) { rank.count = -1; }), "world rank 1 (n1, pid 4701) has not come"));
}

TEST_CASE("a host that does not answer is one line") {
  Job job(4);
  for (const std::size_t rank : {2U, 3U}) job.ranks[rank].heard = false;
  const std::string text = job.report();
  CHECK(contains(text, "\n  world ranks 2, 3 (n2): no word from n2 at all"));
  CHECK(lines_of(text, "  ") == 1);
  CHECK(contains(text, "\n1 other rank has come.\n"));
  CHECK(contains(text, "`ping n2`"));
  // Without shared memory also ranks of one's own host may be silent: that host is up.
  job.ranks[1].heard = false;
  for (const std::size_t rank : {2U, 3U}) job.ranks[rank].heard = true;
  CHECK(contains(job.report(), "world rank 1 (n1): no word from there at all (its ranks are stopped"));
  CHECK_FALSE(contains(job.report(), "ping"));
  CHECK(contains(job.report(), "parallel.timeout"));
}

TEST_CASE("ranks that wait for others in turn: the one that all wait for is named") {
  Job job(4);
  job.operation.collective = 0;
  job.operation.peer = 1;
  job.last(1, RankState::kWaiting, "receive from rank 2", "activation", 5);
  job.last(2, RankState::kWaiting, "receive from rank 3", "activation", 5);
  SUBCASE("stopped") {
    job.ranks[3].state = ProcessState::kStopped;
    const std::string text = job.report();
    CHECK(
        contains(text, "world rank 1 (n1, pid 4701) has not come: last: waiting in receive from rank 2 'activation'"));
    CHECK(contains(text, "world rank 3 (n2, pid 4703): it is stopped"));
    CHECK_FALSE(contains(text, "world rank 2 "));
    CHECK(contains(text, "kill -CONT 4703"));
  }
  SUBCASE("busy") {
    job.ranks[3].note.state = RankState::kFinished;
    job.ranks[3].state = ProcessState::kRunning;
    CHECK(contains(job.report(), "world rank 3 (n2, pid 4703): it is running; last: finished"));
  }
  SUBCASE("its host is silent") {
    job.ranks[3].heard = false;
    CHECK(contains(job.report(), "world rank 3 (n2): no word from n2 at all"));
  }
}

TEST_CASE("all have come") {
  Job job(3);
  SUBCASE("and wait: a message was lost, or the order differs") {
    const std::string text = job.report(1);
    CHECK(contains(text,
                   "world rank 1 (n1) waited 30 s for it\nAll its ranks have come.\nThe ranks wait for each other."));
    CHECK(contains(text, "check the network"));
    CHECK(lines_of(text, "  ") == 0);
  }
  SUBCASE("and one was stopped since") {
    job.ranks[2].state = ProcessState::kStopped;
    CHECK(contains(job.report(), "world rank 2 (n2, pid 4702): it is stopped (SIGSTOP); last: waiting in"));
    CHECK(contains(job.report(), "All its ranks have come.\nWhat stopped it"));
  }
  SUBCASE("and one computes, so that it does not help on") {
    job.ranks[2].note.state = RankState::kStarted;
    CHECK(contains(job.report(), "world rank 2 (n2, pid 4702): it sleeps; last: started"));
  }
}

TEST_CASE("ranks outside of the communicator do not count as members") {
  Job job(4);
  job.operation.members = {0, 2};
  job.missing(1);
  job.missing(2);
  const std::string text = job.report();
  CHECK(contains(text, "world rank 2 "));
  CHECK_FALSE(contains(text, "world rank 1 "));
  CHECK_FALSE(contains(text, "other rank"));
}

TEST_CASE("a recorded step, whose operations are not counted: ranks that do not wait are named") {
  Job job(3);
  job.operation.collective = 0;
  job.missing(2);
  const std::string text = job.report();
  CHECK(contains(text, "world rank 2 (n2, pid 4702): it sleeps"));
  CHECK_FALSE(contains(text, "have come"));
}

TEST_CASE("128 ranks: those in the same state are one line, the telling ones come first") {
  Job job(128);
  for (RankStatus& rank : job.ranks) rank.host = fmt::format("n{}", rank.world_rank / 8);
  for (int rank = 1; rank < 128; ++rank) job.missing(rank);
  job.ranks[33].state = ProcessState::kStopped;
  for (const std::size_t rank : {5U, 6U, 90U}) job.ranks[rank].state = ProcessState::kRunning;
  job.ranks[6].age = 29.5;
  const std::string text = job.report();
  CHECK(lines_of(text, "  world rank") == 3);
  CHECK(contains(text, "s for it\n  world rank 33 (n4, pid 4733) has not come: it is stopped"));
  CHECK(contains(
      text,
      "\n  world ranks 1-4, 7-32, 34-89, 91-127 (n0, n1, n2 and 13 other hosts; for example pid 4701 on n0) have "
      "not come: they sleep; last: finished all_reduce 'step loss' (collective 311 on 'replicas'), 31.2 s "
      "ago\n"));
  CHECK(contains(text,
                 "\n  world ranks 5, 6, 90 (n0 and n11; for example pid 4705 on n0) have not come: they are running; "
                 "last: finished all_reduce 'step loss' (collective 311 on 'replicas'), 29.5 to 31.2 s ago\n"));
  CHECK_FALSE(contains(text, "have come"));
  CHECK(text.size() < 1200);

  // A line for each operation: no more than eight.
  for (int rank = 1; rank < 128; ++rank) {
    job.last(rank, RankState::kFinished, "all_reduce", fmt::format("bucket {}", rank), 311);
  }
  CHECK(lines_of(job.report(), "  world rank ") == 8);
  CHECK(contains(job.report(), "\n  and 119 more\n"));
  CHECK(contains(job.report(), "world rank 33 (n4, pid 4733) has not come: it is stopped"));

  for (RankStatus& rank : job.ranks) rank.heard = rank.world_rank < 8;
  CHECK(lines_of(job.report(), "  world ranks ") == 8);
  CHECK(contains(job.report(), "\n  world ranks 16-23 (n2): no word from n2 at all"));
}

}  // namespace convoy
