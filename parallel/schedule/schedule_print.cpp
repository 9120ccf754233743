// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "parallel/schedule/simulator.h"

namespace convoy {

namespace {

constexpr std::size_t kComfortable = 120;  // columns; wider grids have no spaces and legends

// One unit of time on one stage.
struct Cell {
  std::string text = ".";
  std::string color;  // the parameters of the ANSI escape; empty: none
};

// With two chunks the second has small letters: shorter than a chunk number.
std::string label(const Action& action, int chunks) {
  if (chunks > 2 || action.chunk == 0) return action_name(action);
  std::string name = action_name({action.kind, action.microbatch});
  name.front() = static_cast<char>(name.front() - 'A' + 'a');
  return name;
}

// Black on a background by kind, bright for every second chunk.
std::string color_of(const Action& action) {
  int color = 4;  // blue: forward
  if (action.kind == ActionKind::kBackward) color = 2;
  if (action.kind == ActionKind::kBackwardInput) color = 6;
  if (action.kind == ActionKind::kBackwardWeight) color = 3;
  return fmt::format("30;{}", (action.chunk % 2 == 0 ? 40 : 100) + color);
}

using Row = std::vector<Cell>;

Row row_of(const std::vector<TimedAction>& timed, int chunks, std::size_t columns) {
  Row row(columns);
  for (const TimedAction& one : timed) {
    if (!is_compute(one.action.kind)) continue;
    const auto first = static_cast<std::size_t>(std::lround(one.start));
    const auto end = static_cast<std::size_t>(std::lround(one.end));
    for (std::size_t i = first; i < end; ++i)
      row.at(i) = {i == first ? label(one.action, chunks) : "-", color_of(one.action)};
  }
  return row;
}

std::string painted(const std::string& text, const std::string& color) {
  return color.empty() ? text : fmt::format("\x1b[{}m{}\x1b[0m", color, text);
}

std::string line_of(const Row& row, std::size_t width, bool spaced, bool color) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i) {
    // The second half of a whole backward is drawn to the full width, so that both read as one.
    const char fill = row[i].text == "-" ? '-' : ' ';
    std::string text = row[i].text + std::string(width - row[i].text.size(), fill);
    line += color ? painted(text, row[i].color) : text;
    if (spaced && i + 1 < row.size()) {
      const bool joined = row[i + 1].text == "-";
      line += color && joined ? painted(" ", row[i].color) : " ";
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

std::string schedule_grid(const Schedule& schedule, bool color) {
  const Timeline timeline = simulate(schedule, unit_costs(schedule));
  const auto columns = static_cast<std::size_t>(std::lround(timeline.seconds));
  std::vector<Row> rows;
  std::size_t width = 1;
  for (const std::vector<TimedAction>& timed : timeline.stages) {
    rows.push_back(row_of(timed, schedule.chunks, columns));
    for (const Cell& cell : rows.back()) width = std::max(width, cell.text.size());
  }
  std::string_view head = "stage ";
  const std::size_t most_columns =
      head.size() + fmt::format("{}  ", schedule.stages - 1).size() + columns * (width + 1);
  const bool spaced = most_columns <= kComfortable;
  if (!spaced) head = "";
  std::string grid;
  int most = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    grid += fmt::format("{}{:<{}}  {}\n", head, stage, fmt::formatted_size("{}", schedule.stages - 1),
                        line_of(rows[static_cast<std::size_t>(stage)], width, spaced, color));
    most = std::max(most, activations_in_flight(schedule, stage));
  }
  const double share = timeline.seconds > 0 ? timeline.bubble() / timeline.seconds : 0;
  grid += fmt::format("step: {:g} units, of which the stage that idles most idles {:g} ({:.0f}%)\n", timeline.seconds,
                      timeline.bubble(), 100 * share);
  grid += fmt::format("activations in flight: at most {} on a stage\n", most);
  return grid;
}

}  // namespace convoy
