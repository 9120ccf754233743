// SPDX-License-Identifier: Apache-2.0
//
// The progress of a training, observed from outside: the lines that it appends to metrics.jsonl, and its checkpoints.
// Read-only. Lines of earlier generations do not count.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "io/log/metrics_reader.h"

namespace convoy {

class RunStatus {
 public:
  RunStatus(std::string run_folder, std::string checkpoint_folder);

  /// A new generation is about to start.
  void begin();
  /// Instead, on a new object: the generation is one that another launch started, when the file held `starts_before`.
  void take_up(std::int64_t starts_before);
  /// Reads new lines.
  void poll();

  /// Trainings that had begun before this generation, by the file.
  [[nodiscard]] std::int64_t starts_before() const { return starts_at_begin_; }
  /// the step from which the generation resumed, once its trainer has begun.
  [[nodiscard]] std::optional<std::int64_t> start_step() const { return start_step_; }
  /// When its first step was seen.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> first_step_at() const { return first_step_at_; }
  /// When its last start or step was seen.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> last_seen_at() const { return last_seen_at_; }
  /// Whether its last line says that it stopped before its end, by a signal or time limit.
  [[nodiscard]] bool stopped_early() const { return stopped_early_; }
  /// The step of the newest checkpoint file, 0 without one.
  [[nodiscard]] std::int64_t newest_checkpoint() const;
  /// Seconds since anything was added to metrics.jsonl, by the file's time; 0 when there is none.
  [[nodiscard]] double seconds_since_last_line() const;

 private:
  void read_line(const std::string& line);

  std::string metrics_, checkpoints_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;
  std::string half_line_;
  MetricsLine fields_;
  std::int64_t starts_ = 0;           // "start" lines seen in the file
  std::int64_t starts_at_begin_ = 0;  // of past generations
  std::optional<std::int64_t> start_step_;
  std::optional<std::chrono::steady_clock::time_point> first_step_at_;
  std::optional<std::chrono::steady_clock::time_point> last_seen_at_;
  bool stopped_early_ = false;
};

}  // namespace convoy
