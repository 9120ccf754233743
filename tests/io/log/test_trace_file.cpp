// SPDX-License-Identifier: Apache-2.0
//
// Traces of ranks: they survive the way to rank 0, and the file is one that trace viewers read: all ranks on one clock,
// nothing on a row that overlaps without nesting.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/log/trace_file.h"
#include "layers/base/random.h"
#include "tests/io/temporary_folder.h"

using namespace convoy;
using namespace convoy::test;
using nlohmann::json;
using trace::Event;
using trace::Track;

namespace {

const std::string kOddName = "\"B3\"\n\tüber \\ 日本 \x01 {0}";

json written(const std::vector<RankTrace>& ranks) {
  const TemporaryFolder folder;
  write_trace_file(folder / "trace.json", ranks);
  return json::parse(read_text(folder / "trace.json"));
}

std::vector<json> of_phase(const json& file, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

json named(const json& file, const std::string& name) {
  for (const json& event : of_phase(file, "X")) {
    if (event["name"] == name) return event;
  }
  return nullptr;
}

// "pid tid name" of every row that has a name.
std::set<std::string> row_names(const json& file) {
  std::set<std::string> names;
  for (const json& event : of_phase(file, "M")) {
    if (event["name"] == "thread_name") {
      names.insert(event["pid"].dump() + " " + event["tid"].dump() + " " + event["args"]["name"].get<std::string>());
    }
  }
  return names;
}

// Events of a row overlap, and neither lies within the other or nesting is not allowed.
int conflicts(const json& file, bool may_nest) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  for (const json& event : of_phase(file, "X")) {
    const double start = event["ts"].get<double>();
    rows[{event["pid"].get<int>(), event["tid"].get<int>()}].emplace_back(start, start + event["dur"].get<double>());
  }
  constexpr double kTiny = 1e-4;  // microseconds: less than a digit of the file
  int count = 0;
  for (const auto& [row, spans] : rows) {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      for (std::size_t j = i + 1; j < spans.size(); ++j) {
        const auto& [a, b] = std::pair(spans[i], spans[j]);
        const bool apart = a.second <= b.first + kTiny || b.second <= a.first + kTiny;
        const bool nested = (a.first <= b.first + kTiny && b.second <= a.second + kTiny) ||
                            (b.first <= a.first + kTiny && a.second <= b.second + kTiny);
        if (!apart && !(nested && may_nest)) ++count;
      }
    }
  }
  return count;
}

}  // namespace

TEST_CASE("a packed trace unpacks to itself") {
  const RankTrace rank{"rank 1 \"x\"\n",
                       -1.0 / 3,
                       12,
                       {{kOddName, Track::kCheckpoint, -1, 1e9 / 7, 1e9 / 7 + 1e-7},
                        {"", Track::kCompute, std::int64_t{1} << 60, 0.1, 0.2}}};
  const RankTrace back = unpack_trace(pack_trace(rank));
  CHECK(back.name == rank.name);
  CHECK(back.clock_offset == rank.clock_offset);
  CHECK(back.dropped == 12);
  REQUIRE(back.events.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(back.events[i].name == rank.events[i].name);
    CHECK(back.events[i].track == rank.events[i].track);
    CHECK(back.events[i].step == rank.events[i].step);
    CHECK(back.events[i].start == rank.events[i].start);
    CHECK(back.events[i].end == rank.events[i].end);
  }
  CHECK(unpack_trace(pack_trace({})).events.empty());
  CHECK(unpack_trace(pack_trace({"\xFF\xFE", 0, 0, {}})).name == "\uFFFD\uFFFD");
}

TEST_CASE("what is no packed trace is an error") {
  const std::string good = pack_trace({"rank 0", 0, 0, {{"F0", Track::kSend, 1, 0, 1}}});
  for (std::size_t length = 0; length < good.size(); ++length) {
    CHECK_THROWS_AS((void)unpack_trace(good.substr(0, length)), Error);
  }
  const auto with_events = [](const std::string& events) {
    return R"({"name":"rank 0","clock_offset":0,"dropped":0,"events":)" + events + "}";
  };
  CHECK(unpack_trace(with_events(R"([["F0",1,2,3,4]])")).events.at(0).end == 4);
  for (const std::string events : {R"([["F0",1,2,3]])", R"([["F0",7,2,3,4]])", R"([["F0",-1,2,3,4]])", R"({"a":1})",
                                   R"([["F0",1,1e300,3,4]])", R"([["F0",1,2,null,4]])", R"([[1,1,2,3,4]])", "[3]"}) {
    CAPTURE(events);
    CHECK_THROWS_AS((void)unpack_trace(with_events(events)), Error);
  }
  for (const std::string text : {"", "{}", "[]", "null", "\xFF\x00garbage", "[[[[[[", "7"}) {
    CAPTURE(text);
    CHECK(contains(error_of([&] { (void)unpack_trace(text); }), "trace"));
  }
}

TEST_CASE("all ranks are on one clock whose zero is the earliest event") {
  const json file = written({{"rank 0", 0, 0, {{"F0", Track::kCompute, 3, 1000.5, 1000.75}}},
                             {"rank 1", 900, 5, {{"F1", Track::kCompute, 3, 100.25, 100.25 + 1.5e-6}}}});
  CHECK(file["displayTimeUnit"] == "ms");
  CHECK(file["otherData"]["dropped_events"] == json::array({0, 5}));
  const json first = named(file, "F1");
  CHECK(first["ts"].get<double>() == 0);
  CHECK(first["dur"].get<double>() == doctest::Approx(1.5));
  CHECK(first["pid"] == 1);
  CHECK(first["cat"] == "compute");
  CHECK(first["args"]["step"] == 3);
  const json second = named(file, "F0");
  CHECK(second["ts"].get<double>() == doctest::Approx(250'000));
  CHECK(second["dur"].get<double>() == doctest::Approx(250'000));
  CHECK(second["pid"] == 0);
}

TEST_CASE("ranks and rows have names and an order") {
  const json file = written({{"rank 0 (" + kOddName + ")", 0, 0, {{kOddName, Track::kWait, 0, 0, 1}}},
                             {"rank 1", 0, 0, {{"a", Track::kSend, 0, 0, 2}, {"b", Track::kSend, 0, 1, 3}}},
                             {"rank 2, idle", 0, 0, {}}});
  CHECK(named(file, kOddName)["tid"] == 300);
  CHECK(row_names(file) == std::set<std::string>{"0 300 wait", "1 100 send", "1 101 send 2"});
  std::map<int, std::string> names;
  std::map<int, int> order;
  int rows_in_order = 0;
  for (const json& event : of_phase(file, "M")) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["name"] == "process_sort_index") order[event["pid"]] = event["args"]["sort_index"];
    if (event["name"] == "thread_sort_index") rows_in_order += event["args"]["sort_index"] == event["tid"] ? 1 : 100;
  }
  CHECK(names == std::map<int, std::string>{{0, "rank 0 (" + kOddName + ")"}, {1, "rank 1"}, {2, "rank 2, idle"}});
  CHECK(order == std::map<int, int>{{0, 0}, {1, 1}, {2, 2}});
  CHECK(rows_in_order == 3);
}

TEST_CASE("what one thread calls nests; messages under way get rows of their own") {
  const std::vector<Event> events{{"outer", Track::kCompute, 0, 0, 10},  {"inner", Track::kCompute, 0, 2, 4},
                                  {"within", Track::kCompute, 0, 2, 4},  {"next", Track::kCompute, 0, 10, 11},
                                  {"across", Track::kCompute, 0, 3, 12}, {"long", Track::kSend, 0, 0, 10},
                                  {"short", Track::kSend, 0, 2, 4},      {"then", Track::kSend, 0, 4, 6}};
  const json file = written({{"rank 0", 0, 0, events}});
  const auto row = [&](const char* name) { return named(file, name)["tid"].get<int>(); };
  for (const char* name : {"outer", "inner", "within", "next"}) CHECK(row(name) == 0);
  CHECK(row("across") == 1);
  CHECK(row("long") == 100);
  CHECK(row("short") == 101);
  CHECK(row("then") == 101);
}

TEST_CASE("rows never overlap, however many are needed") {
  std::uint64_t draws = 0;
  const auto uniform = [&] { return random_uniform(5, draws++); };
  RankTrace rank{"rank 0", 0.123, 0, {}};
  for (int i = 0; i < 300; ++i) {
    const double start = 1e5 + uniform();
    rank.events.push_back({"m", Track::kReduce, 0, start, start + uniform()});
    const double tiny = 1e5 + 1e-6 * uniform();
    rank.events.push_back({"m", Track::kReceive, 0, tiny, tiny + 1e-8 * uniform()});
  }
  const json many = written({rank});
  CHECK(conflicts(many, false) == 0);
  CHECK(of_phase(many, "X").size() == 600);
  std::set<std::string> tracks_of_rows;  // more than 100 rows of one track do not run into the next one's
  for (const json& event : of_phase(many, "X")) {
    tracks_of_rows.insert(std::to_string(event["tid"].get<int>() / 1000) + event["cat"].get<std::string>());
  }
  CHECK(tracks_of_rows == std::set<std::string>{"2receive", "4reduce"});

  for (Event& event : rank.events) event.track = Track::kCompute;
  CHECK(conflicts(written({rank}), true) == 0);
}

TEST_CASE("times that are none are left out, and no events are fine") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const json file =
      written({{"rank 0", 0, 0, {{"bad", Track::kWait, 0, nan, 1}, {"backwards", Track::kWait, 0, 3, 2}}}});
  CHECK(named(file, "bad").is_null());
  CHECK(named(file, "backwards")["dur"].get<double>() == 0);
  CHECK(named(file, "backwards")["ts"].get<double>() == 0);
  CHECK(written({})["traceEvents"].empty());
}

TEST_CASE("a path that cannot be written is an error that names it, and an old file is replaced") {
  const TemporaryFolder folder;
  const std::string path = folder / "absent/trace.json";
  CHECK(contains(error_of([&] { write_trace_file(path, {}); }), path));
  write_text(folder / "trace.json", "old");
  write_trace_file(folder / "trace.json", {});
  CHECK(json::parse(read_text(folder / "trace.json")).is_object());
}
