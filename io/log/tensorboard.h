// SPDX-License-Identifier: Apache-2.0
//
// Scalars as TensorBoard event files. The format is small enough to write by hand: records framed as in TFRecord, each
// a tf.Event protocol buffer. Relies on crc32c.h. Invariants: the first event of a file is its version; an event is in
// the file when the call that adds it returns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

class TensorboardWriter {
 public:
  /// Starts DIR/events.out.tfevents.<seconds>.<host>.<pid>. A run that resumes after `resumed_step` > 0 says so: the
  /// viewer then drops what an interrupted run had written beyond it.
  explicit TensorboardWriter(const std::string& dir, std::int64_t resumed_step = 0);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  void scalar(std::string_view tag, std::int64_t step, double value);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void write_event(std::int64_t step, std::string_view what);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace convoy
