// SPDX-License-Identifier: Apache-2.0
#include "app/report/run_metrics.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

namespace {

// Drops the entries whose step is `step` or a later one.
template <class Line>
void drop_from(std::vector<Line>& lines, std::int64_t step) {
  while (!lines.empty() && lines.back().step >= step) lines.pop_back();
}

template <class Line>
void append(std::vector<Line>& lines, Line line) {
  drop_from(lines, line.step);
  lines.push_back(std::move(line));
}

RankSpread spread_of(const MetricsLine& line, std::string_view key) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double>& list = line.list(key);
  if (list.size() != 3) return {kNone, kNone, kNone};
  return {list[0], list[1], list[2]};
}

}  // namespace

bool MetricsReader::read(std::string_view line) {
  if (!line_.parse(line)) return false;
  const std::string_view event = line_.text("event");
  if (event.empty()) return false;
  if (event == "end") {
    run_.end_reason = line_.text("reason");
    return true;
  }
  if (event == "copy") return true;  // nothing is shown of it
  const bool known =
      event == "step" || event == "health" || event == "eval" || event == "checkpoint" || event == "start";
  if (!known) {
    ++run_.unknown_events;
    return true;
  }
  const auto step = line_.integer("step");
  if (!step) return false;
  take(event, *step);
  return true;
}

void MetricsReader::take(std::string_view event, std::int64_t step) {
  const auto number = [&](const char* key) { return line_.number(key); };
  const auto whole = [&](const char* key) { return line_.integer(key).value_or(0); };
  if (event == "step") {
    append(run_.steps, {step, whole("epoch"), number("samples"), number("loss"), number("lr"),
                        number("images_per_second"), number("data_wait_s"), number("energy_j")});
  } else if (event == "health") {
    append(run_.health, {step, number("steps"), spread_of(line_, "step_s"), spread_of(line_, "busy_s"),
                         spread_of(line_, "data_wait_s"), spread_of(line_, "communication_wait_s"),
                         whole("slowest_rank"), std::string(line_.text("slowest_host")), number("slowdown")});
  } else if (event == "eval") {
    append(run_.evals, {step, whole("epoch"), number("loss"), number("top1"), number("top5"), number("seconds")});
  } else if (event == "checkpoint") {
    append(run_.checkpoints, {step, number("seconds"), number("stall_s")});
  } else {
    start({step, whole("ranks"), whole("replicas"), whole("stages"), whole("total_steps"),
           std::string(line_.text("device")), !line_.text("resumed_from").empty()});
  }
}

// What lies beyond the step of a start is another past; all of it, when the start is fresh.
void MetricsReader::start(StartLine line) {
  drop_from(run_.steps, line.step + 1);
  drop_from(run_.health, line.step + 1);
  drop_from(run_.evals, line.step + 1);
  drop_from(run_.checkpoints, line.step + 1);
  if (!line.resumed) run_.starts.clear();
  run_.starts.push_back(std::move(line));
  run_.end_reason.clear();
}

std::string MetricsReader::read_lines(std::string_view text) {
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos && !read(line)) ++run_.bad_lines;
  }
  return std::string(text);
}

bool MetricsReader::is_empty() const { return run_.starts.empty() && run_.steps.empty() && run_.evals.empty(); }

void fail_no_metrics(const std::string& path) {
  fail_usage(
      "{} is no file of metrics: no line of it is an event of a run (name a run's folder, such as runs/NAME, "
      "or the metrics.jsonl in it)",
      path);
}

RunMetrics parse_metrics(std::string_view text, const std::string& path) {
  if (text.empty()) fail_usage("{} is empty: the run has written nothing yet (wait for its first step)", path);
  MetricsReader reader;
  const std::string rest = reader.read_lines(text);
  const bool blank = rest.find_first_not_of(" \t\r") == std::string::npos;
  const bool cut = !blank && !reader.read(rest);
  if (reader.is_empty()) fail_no_metrics(path);
  RunMetrics run = reader.run();
  run.cut = cut;
  return run;
}

}  // namespace convoy
