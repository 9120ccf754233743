// SPDX-License-Identifier: Apache-2.0
#include "parallel/engine/step_recording.h"

namespace convoy {

void StepRecording::run(const Key& key, const std::function<void()>& step) {
  if (!record_) {
    step();
    return;
  }
  const auto found = kinds_.find(key);
  if (found == kinds_.end()) {
    step();
    if (kinds_.size() >= kMaxKinds) kinds_.clear();
    kinds_.emplace(key, nullptr);
    return;
  }
  if (!found->second) {
    found->second = record_(step);
    if (!found->second) {  // the device cannot
      record_ = nullptr;
      kinds_.clear();
      step();
      return;
    }
  }
  found->second->replay();
}

}  // namespace convoy
