// SPDX-License-Identifier: Apache-2.0
//
// Packing goes through a JSON library; the file, which may have millions of events, is put together here. Times are
// rounded to whole nanoseconds before anything is compared. Invariant: on a row of the file, events lie apart, or, on
// the tracks of what one thread calls (see nests()), one within the other; whatever else overlaps gets another row.
#include "io/log/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

using nlohmann::json;
using trace::Event;
using trace::Track;

constexpr std::size_t kRowsPerTrack = 100;  // tid = track * kRowsPerTrack + row, while that suffices

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Whether an event within another belongs below it. What is under way beside the program (messages, reductions, the
// loader's threads) is not part of what happens to surround it.
bool nests(Track track) { return track == Track::kCompute || track == Track::kWait; }

struct Placed {
  const Event* event;
  std::int64_t start, end;  // nanoseconds since the earliest event of all ranks
  std::size_t row = 0;
};

// Gives each of a track's events the first row where it does not overlap another. Returns how many rows there are.
std::size_t place(std::vector<Placed>& events, bool nested) {
  std::sort(events.begin(), events.end(), [](const Placed& a, const Placed& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;  // the outer one first
  });
  std::vector<std::vector<std::int64_t>> rows;  // ends of what is open there, the innermost last
  for (Placed& placed : events) {
    for (placed.row = 0; placed.row < rows.size(); ++placed.row) {
      auto& open = rows[placed.row];
      while (!open.empty() && open.back() <= placed.start) open.pop_back();
      if (open.empty() || (nested && open.back() >= placed.end)) break;
    }
    if (placed.row == rows.size()) rows.emplace_back();
    rows[placed.row].push_back(placed.end);
  }
  return rows.size();
}

using Tracks = std::map<Track, std::vector<Placed>>;

bool is_drawable(const Event& event) { return std::isfinite(event.start) && std::isfinite(event.end); }

Tracks tracks_of(const RankTrace& rank, double zero) {
  Tracks tracks;
  for (const Event& event : rank.events) {
    if (!is_drawable(event)) continue;
    const auto nanoseconds = [&](double time) { return std::llround((time + rank.clock_offset - zero) * 1e9); };
    const std::int64_t start = nanoseconds(event.start);
    tracks[event.track].push_back({&event, start, std::max<std::int64_t>(start, nanoseconds(event.end))});
  }
  return tracks;
}

// Lines of the list of events, with the comma between them.
class EventList {
 public:
  void name(const char* kind, std::size_t pid, std::size_t tid, const std::string& name) {
    add(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", kind, pid, tid, dump(name));
  }
  void sort_index(const char* kind, std::size_t pid, std::size_t tid, std::size_t index) {
    add(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", kind, pid, tid, index);
  }
  void complete(const Placed& placed, std::size_t pid, std::size_t tid) {
    const std::int64_t duration = placed.end - placed.start;
    add(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},"args":{{"step":{}}}}})",
        dump(placed.event->name), track_name(placed.event->track), pid, tid, placed.start / 1000, placed.start % 1000,
        duration / 1000, duration % 1000, placed.event->step);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += text_.empty() ? "\n" : ",\n";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  std::string text_;
};

void add_rank(EventList& list, std::size_t pid, const RankTrace& rank, double zero) {
  list.name("process_name", pid, 0, rank.name);
  list.sort_index("process_sort_index", pid, 0, pid);
  Tracks tracks = tracks_of(rank, zero);
  std::map<Track, std::size_t> rows;
  std::size_t stride = kRowsPerTrack;
  for (auto& [track, events] : tracks) {
    rows[track] = place(events, nests(track));
    while (stride < rows[track]) stride *= 10;
  }
  for (const auto& [track, events] : tracks) {
    const std::size_t first = static_cast<std::size_t>(track) * stride;
    for (std::size_t row = 0; row < rows[track]; ++row) {
      const std::string name(track_name(track));
      list.name("thread_name", pid, first + row, row == 0 ? name : fmt::format("{} {}", name, row + 1));
      list.sort_index("thread_sort_index", pid, first + row, first + row);
    }
    for (const Placed& placed : events) list.complete(placed, pid, first + placed.row);
  }
}

// Stricter than get<>(), which makes something of any number.
std::int64_t integer(const json& value) {
  if (!value.is_number_integer()) fail("a packed trace has {} in place of an integer", dump(value));
  return value.get<std::int64_t>();
}

}  // namespace

std::string pack_trace(const RankTrace& rank) {
  json events = json::array();
  for (const Event& event : rank.events) {
    events.push_back(json::array({event.name, static_cast<int>(event.track), event.step, event.start, event.end}));
  }
  return dump({{"name", rank.name},
               {"clock_offset", rank.clock_offset},
               {"dropped", rank.dropped},
               {"events", std::move(events)}});
}

RankTrace unpack_trace(const std::string& text) {
  try {
    const json packed = json::parse(text);
    RankTrace rank{packed.at("name").get<std::string>(),
                   packed.at("clock_offset").get<double>(),
                   static_cast<std::uint64_t>(integer(packed.at("dropped"))),
                   {}};
    for (const json& event : packed.at("events")) {
      const std::int64_t track = integer(event.at(1));
      if (track < 0 || track > static_cast<std::int64_t>(Track::kCheckpoint))
        fail("a packed trace has no track {}", track);
      rank.events.push_back({event.at(0).get<std::string>(), static_cast<Track>(track), integer(event.at(2)),
                             event.at(3).get<double>(), event.at(4).get<double>()});
    }
    return rank;
  } catch (const json::exception& error) {
    fail("the trace that a rank sent cannot be read: {}", error.what());
  }
}

double earliest_start(const RankTrace& rank) {
  double earliest = std::numeric_limits<double>::infinity();
  for (const Event& event : rank.events) {
    if (is_drawable(event)) earliest = std::min(earliest, event.start + rank.clock_offset);
  }
  return earliest;
}

TraceFile::TraceFile(const std::string& path, double zero) : path_(path), file_(path), zero_(zero) {
  write(R"({"displayTimeUnit":"ms","traceEvents":[)");
}

void TraceFile::write(const std::string& text) { write_all(file_.descriptor(), std::as_bytes(std::span(text)), path_); }

void TraceFile::add(const RankTrace& rank) {
  EventList list;
  add_rank(list, dropped_.size(), rank, zero_);
  write((dropped_.empty() ? "" : ",") + list.text());
  dropped_.push_back(rank.dropped);
}

void TraceFile::finish() {
  write("\n],\"otherData\":{\"dropped_events\":" + dump(json(dropped_)) + "}}\n");
  file_.finish();
}

void write_trace_file(const std::string& path, const std::vector<RankTrace>& ranks) {
  double zero = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks) zero = std::min(zero, earliest_start(rank));
  TraceFile file(path, zero);
  for (const RankTrace& rank : ranks) file.add(rank);
  file.finish();
}

}  // namespace convoy
