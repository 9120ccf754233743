// SPDX-License-Identifier: Apache-2.0
//
// What backends share: the host's clock as their mark.
#include "layers/backend/backend.h"

#include <chrono>

namespace convoy {

namespace {

class HostMark final : public TimeMark {
 public:
  [[nodiscard]] double seconds_since(const TimeMark& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const HostMark&>(earlier).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

}  // namespace

std::unique_ptr<TimeMark> Backend::mark() { return std::make_unique<HostMark>(); }

}  // namespace convoy
