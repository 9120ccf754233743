// SPDX-License-Identifier: Apache-2.0
//
// The recorder of traces: silent when off, bounded, safe from several threads.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "layers/base/trace.h"

using namespace convoy;
using trace::Span;
using trace::Track;

TEST_CASE("a recorder that is off records nothing") {
  trace::start();
  trace::stop();
  CHECK_FALSE(trace::enabled());
  { const Span span(Track::kCompute, "F0"); }
  trace::record(Track::kSend, "SA0", 1, 2);
  CHECK(trace::events().empty());
  CHECK(trace::dropped() == 0);
}

TEST_CASE("a span is recorded only when the recorder is on at both of its ends") {
  trace::start();
  trace::stop();
  {
    const Span span(Track::kCompute, "begun while off");
    trace::start();
  }
  {
    const Span span(Track::kCompute, "ended while off");
    trace::stop();
  }
  CHECK(trace::events().empty());
}

TEST_CASE("spans nest, in the order of their ends, with the step that was set") {
  const double before = trace::now();
  trace::start();
  trace::set_step(7);
  {
    const Span outer(Track::kCompute, "F0");
    const Span inner(Track::kWait, "a name that does not fit into the string object itself");
  }
  trace::set_step(8);
  { const Span later(Track::kData, "batch"); }
  trace::stop();
  const double after = trace::now();

  const auto events = trace::events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].name == "a name that does not fit into the string object itself");
  CHECK(events[0].track == Track::kWait);
  CHECK(events[1].name == "F0");
  CHECK(events[1].step == 7);
  CHECK(events[2].name == "batch");
  CHECK(events[2].step == 8);
  CHECK(events[1].start <= events[0].start);
  CHECK(events[0].end <= events[1].end);
  CHECK(events[1].end <= events[2].start);
  CHECK(before <= events[1].start);
  CHECK(events[2].end <= after);
}

TEST_CASE("events with known times come in the order of their ends, too") {
  trace::start();
  trace::record(Track::kSend, "late", 1, 5);
  trace::record(Track::kSend, "early", 2, 3);
  trace::record(Track::kReceive, "early too", 0, 3);
  trace::stop();
  const auto events = trace::events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].name == "early");
  CHECK(events[0].start == 2);
  CHECK(events[0].end == 3);
  CHECK(events[1].name == "early too");
  CHECK(events[2].name == "late");
}

TEST_CASE("what does not fit is counted, and start() forgets it") {
  trace::start(3);
  for (int i = 0; i < 10; ++i) const Span span(Track::kCompute, fmt::format("{}", i));
  CHECK(trace::events().size() == 3);
  CHECK(trace::events()[2].name == "2");
  CHECK(trace::dropped() == 7);

  trace::start(0);
  CHECK(trace::events().empty());
  CHECK(trace::dropped() == 0);
  { const Span span(Track::kCompute, "F0"); }
  CHECK(trace::events().empty());
  CHECK(trace::dropped() == 1);

  trace::start();
  { const Span span(Track::kCompute, "F0"); }
  trace::stop();
  CHECK(trace::events().size() == 1);
  CHECK(trace::dropped() == 0);
}

TEST_CASE("several threads record at once") {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  constexpr std::size_t kCapacity = 7000;
  trace::start(kCapacity);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([thread] {
        for (int i = 0; i < kEach; ++i) {
          trace::set_step(i);
          const Span span(Track::kData, std::to_string(thread) + "/" + std::to_string(i));
        }
      });
    }
    CHECK(trace::events().size() <= kCapacity);  // and it can be read meanwhile
  }
  trace::stop();
  const auto events = trace::events();
  CHECK(events.size() == kCapacity);
  CHECK(trace::dropped() == kThreads * kEach - kCapacity);
  std::set<std::string> names;
  bool ordered = true;
  double last = 0;
  for (const auto& event : events) {
    names.insert(event.name);
    ordered = ordered && event.start <= event.end && last <= event.end;
    last = event.end;
  }
  CHECK(names.size() == kCapacity);
  CHECK(ordered);
}

TEST_CASE("tracks have different names") {
  std::set<std::string_view> names;
  for (int track = 0; track <= static_cast<int>(Track::kCheckpoint); ++track) {
    names.insert(trace::track_name(static_cast<Track>(track)));
  }
  CHECK(names == std::set<std::string_view>{"compute", "send", "receive", "wait", "reduce", "data", "checkpoint"});
}
