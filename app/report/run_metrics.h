// SPDX-License-Identifier: Apache-2.0
//
// What a metrics.jsonl says (docs/interface.md), as numbers. Relies on one JSON object a line; lines of
// events unknown to this version and lines that are not events are counted and skipped, so a run that is being written
// reads well. Invariant: steps rise strictly in every list.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/log/metrics_reader.h"

namespace convoy {

/// Numbers that a line lacks, or that are null there (NaN, infinity), are NaN.
struct StepLine {
  std::int64_t step = 0, epoch = 0;
  double samples = 0, loss = 0, lr = 0, images_per_second = 0, data_wait_s = 0;
  double energy_j = 0;  ///< of all nodes since the line before that has it
};

/// Seconds per step over the ranks: least, median, most.
using RankSpread = std::array<double, 3>;

struct HealthLine {
  std::int64_t step = 0;
  double steps = 0;  ///< that the means are taken over
  RankSpread step_s{}, busy_s{}, data_wait_s{}, communication_wait_s{};
  std::int64_t slowest_rank = 0;
  std::string slowest_host;
  double slowdown = 0;
};

struct EvalLine {
  std::int64_t step = 0, epoch = 0;
  double loss = 0, top1 = 0, top5 = 0, seconds = 0;  ///< shares, not per cent
};

struct CheckpointLine {
  std::int64_t step = 0;
  double seconds = 0, stall_s = 0;
};

/// One start of the ranks.
struct StartLine {
  std::int64_t step = 0, ranks = 0, replicas = 0, stages = 0, total_steps = 0;
  std::string device;
  bool resumed = false;
};

struct RunMetrics {
  std::vector<StartLine> starts;  ///< the first is fresh, unless the file lacks it; those after it resumed
  std::vector<StepLine> steps;
  std::vector<HealthLine> health;
  std::vector<EvalLine> evals;
  std::vector<CheckpointLine> checkpoints;
  std::string end_reason;           ///< of the last start; empty: none (yet)
  std::int64_t unknown_events = 0;  ///< lines
  std::int64_t bad_lines = 0;       ///< no JSON, or without what their event needs
  bool cut = false;                 ///< the last line has no end and is no JSON
};

/// Takes the lines of a metrics.jsonl, one after the other.
class MetricsReader {
 public:
  /// False when the line is not an event.
  bool read(std::string_view line);
  /// Reads the lines that have an end and returns what is behind the last one. Lines that are no events are counted.
  std::string read_lines(std::string_view text);
  [[nodiscard]] const RunMetrics& run() const { return run_; }
  /// Whether there was no event of a run.
  [[nodiscard]] bool is_empty() const;

 private:
  void take(std::string_view event, std::int64_t step);
  void start(StartLine line);

  MetricsLine line_;
  RunMetrics run_;
};

/// The usage Error for a file without such events.
[[noreturn]] void fail_no_metrics(const std::string& path);

/// Reads the text of a metrics.jsonl. A start drops what lies beyond its step, as a resumed run does. `path` is for the
/// usage Error of a text that is empty or has no event of a run.
[[nodiscard]] RunMetrics parse_metrics(std::string_view text, const std::string& path);

}  // namespace convoy
