// SPDX-License-Identifier: Apache-2.0
//
// The progress display of a training run, or of packing: a bar that is redrawn on a terminal, a line every few seconds
// in a log file, or nothing. Rank 0 only. Times are those of this process: a resumed run counts only its own steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "app/config/config.h"

namespace convoy {

/// The state that is shown.
struct ProgressState {
  std::int64_t step = 0;  ///< done, from 1
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;   ///< of this step, from 0
  std::int64_t epochs = 0;  ///< of the run, including partial ones
  double loss = 0;
  double images_per_second = 0;
  std::optional<std::chrono::seconds> left;  ///< estimate; empty before the second step
  bool packing = false;                      ///< steps are images, there is neither epoch nor loss
  std::int64_t evaluated = 0;                ///< batches, of
  std::int64_t to_evaluate = 0;              ///< so many; 0: no evaluation is under way
};

/// "epoch 3/20  step 120/400  loss 0.5123  1234.5 samples/s  00:01:20 left"; of a packing
/// "image 120/400  1234.5 images/s  00:01:20 left"; during an evaluation
/// "epoch 3/20  step 120/400  evaluating batch 12/50", without epoch and step when there are none (total_steps = 0)
[[nodiscard]] std::string progress_line(const ProgressState& state);

/// The same after a bar, of the steps or of the evaluation, as long as fits into `columns`; cut when not even the text
/// fits. `color` adds ANSI colours, which take no columns.
[[nodiscard]] std::string progress_bar(const ProgressState& state, std::size_t columns, bool color);

class Progress {
 public:
  /// kAuto is a bar when `out` is a terminal that can redraw a line, else lines.
  Progress(ProgressMode mode, std::int64_t total_steps, std::int64_t epochs, std::FILE* out = stdout);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After step `step` (from 1) of epoch `epoch` (from 0). The first and the last step are always shown.
  void step(std::int64_t step, std::int64_t epoch, double loss, double images_per_second);
  /// During the evaluation after step `step` of epoch `epoch`: `done` of `batches` are evaluated.
  void evaluating(std::int64_t step, std::int64_t epoch, std::int64_t done, std::int64_t batches);
  /// Of a packing: so many images are done.
  void images(std::int64_t done, double images_per_second);
  /// Prints a separate line; a bar moves down. Printed in every mode, including kOff, and after finish().
  void message(const std::string& text);
  /// Removes the bar.
  void clear();
  /// Leaves the bar as it is, with the newest step, and ends its line.
  void finish();

  [[nodiscard]] ProgressMode mode() const { return mode_; }

 private:
  using Clock = std::chrono::steady_clock;

  void advance();
  [[nodiscard]] Clock::duration interval() const;
  void show();
  void clear_bar();

  ProgressMode mode_;
  std::FILE* out_;
  bool color_ = false;
  ProgressState state_;
  bool bar_drawn_ = false;
  bool shown_ = true;  ///< whether the newest state has been printed
  std::int64_t first_step_ = 0;
  Clock::time_point first_time_, last_shown_;
};

}  // namespace convoy
