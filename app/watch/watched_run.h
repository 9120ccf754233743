// SPDX-License-Identifier: Apache-2.0
//
// A run that this process follows: what its metrics.jsonl says so far, read as it grows, and whether somebody writes
// it. Relies on the layout of a run's folder (docs/interface.md). Invariant: nothing is written, and the run is not
// disturbed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/report/run_metrics.h"
#include "io/files/lock_file.h"

namespace convoy {

enum class WatchedState {
  kRunning,  ///< a process holds the folder's lock
  kEnded,    ///< the last line says so
  kStale     ///< neither: it was killed, or is about to be started again
};

class WatchedRun {
 public:
  /// path: a run's folder or its metrics.jsonl. Throws a usage Error when there is nothing to read.
  explicit WatchedRun(const std::string& path);

  /// Reads what is new. A file that was replaced or has become shorter is read anew. Throws a usage Error if it is no
  /// file of metrics.
  void refresh();

  [[nodiscard]] const RunMetrics& metrics() const { return reader_->run(); }
  [[nodiscard]] WatchedState state() const { return state_; }
  /// Who writes the folder; empty: nobody.
  [[nodiscard]] const std::string& holder() const { return holder_; }
  /// Seconds since the file has changed.
  [[nodiscard]] double silence() const { return silence_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string path_, name_, holder_;
  std::unique_ptr<MetricsReader> reader_;
  std::unique_ptr<LockAttempt> lock_;  // null: there is no folder with a lock
  std::string rest_;                   // a line without its end
  std::uint64_t offset_ = 0, inode_ = 0;
  double silence_ = 0;
  WatchedState state_ = WatchedState::kStale;
};

/// What is shown of the run, as lines of at most `columns` characters; `rows`: as many as there is room for.
[[nodiscard]] std::vector<std::string> watch_view(const WatchedRun& run, std::size_t columns, std::size_t rows);

}  // namespace convoy
