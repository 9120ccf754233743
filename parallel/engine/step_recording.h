// SPDX-License-Identifier: Apache-2.0
//
// Steps whose device work is recorded once and then started as a whole (CUDA graphs), where the device can: the first
// step of a kind runs plainly, so that plans are made and memory is there, the second is recorded, later ones are
// replays. What a step does on the host is left out in a replay, so it must not matter then. Invariant: a step gives
// the same result whichever of the three it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "layers/backend/backend.h"

namespace convoy {

class StepRecording {
 public:
  /// What a recorded step depends on: sizes, and factors that are part of the work.
  using Key = std::vector<double>;
  using Record = std::function<std::unique_ptr<RecordedWork>(const std::function<void()>&)>;

  /// record: see Backend::record; empty: every step runs plainly.
  explicit StepRecording(Record record) : record_(std::move(record)) {}

  [[nodiscard]] bool enabled() const { return static_cast<bool>(record_); }
  /// Gives up what was recorded, and with it the memory: steps will be of other kinds from now on.
  void forget() { kinds_.clear(); }
  /// Does the step of this kind.
  void run(const Key& key, const std::function<void()>& step);

 private:
  static constexpr std::size_t kMaxKinds = 8;  // the last batches of epochs, changed loss scales
  Record record_;
  std::map<Key, std::unique_ptr<RecordedWork>> kinds_;  // empty: ran once, not yet recorded
};

}  // namespace convoy
