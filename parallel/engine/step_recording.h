// SPDX-License-Identifier: Apache-2.0
//
// Records the device work of a step once and replays it (CUDA graphs), on devices that support it. The first step of a
// kind runs eagerly, which creates plans and allocates memory; the second is recorded; later ones are replayed. A
// replay does no work on the host, so recorded steps must not depend on it. Invariant: all three give the same result.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "layers/backend/backend.h"

namespace convoy {

class StepRecording {
 public:
  /// Sizes that a recorded step depends on.
  using Key = std::vector<double>;
  using Record = std::function<std::unique_ptr<RecordedWork>(const std::function<void()>&)>;

  /// record: see Backend::record; empty: every step runs eagerly.
  explicit StepRecording(Record record) : record_(std::move(record)) {}

  [[nodiscard]] bool enabled() const { return static_cast<bool>(record_); }
  /// Discards the recordings and their memory, before steps of other kinds.
  void forget() { kinds_.clear(); }
  /// Runs, records or replays a step of this kind.
  void run(const Key& key, const std::function<void()>& step);

 private:
  static constexpr std::size_t kMaxKinds = 8;  // the last batches of epochs
  Record record_;
  std::map<Key, std::unique_ptr<RecordedWork>> kinds_;  // empty: ran once, not yet recorded
};

}  // namespace convoy
