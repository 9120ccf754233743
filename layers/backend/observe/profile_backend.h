// SPDX-License-Identifier: Apache-2.0
//
// A backend that times every operation of another one: how long, how often, for which unit of the model, at which cost.
// Times are taken by the backend's own marks (events on a GPU), so nothing waits within a step. Work is never recorded
// for replay. Invariant: results are the inner backend's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "layers/backend/observe/observing_backend.h"

namespace convoy {

/// What operations cost at least: floating-point operations, and bytes of their operands, each moved once (what is read
/// and changed twice).
struct OperationCost {
  double flops = 0;
  double bytes = 0;
};

/// Bytes of all these tensors; empty ones count nothing.
template <class... Tensors>
[[nodiscard]] double bytes_of(const Tensors&... tensors) {
  return (0.0 + ... + (tensors ? static_cast<double>(tensors.bytes()) : 0.0));
}

/// One operation on one shape in one unit of the model.
struct ProfileKey {
  std::string operation;  ///< "conv2d_forward"
  std::string unit;       ///< "layer1.0"; a phase's name outside of units
  std::string detail;     ///< "3x3 64 -> 64, [16, 64, 32, 32]"
  bool operator<(const ProfileKey& other) const {
    return std::tie(operation, unit, detail) < std::tie(other.operation, other.unit, other.detail);
  }
};

struct ProfileEntry {
  std::int64_t calls = 0;
  double seconds = 0;
  OperationCost cost;  ///< of all calls
};

/// A convolution of the step, to be timed alone.
struct ConvolutionCall {
  enum class Direction { kForward, kBackwardInput, kBackwardWeight };
  Direction direction = Direction::kForward;
  Conv2dSpec spec;
  Shape input;
  bool bias = false;
  auto key() const {
    return std::tuple(direction, spec.in_channels, spec.out_channels, spec.kernel, spec.stride, spec.padding,
                      spec.groups, input.str(), bias);
  }
  bool operator<(const ConvolutionCall& other) const { return key() < other.key(); }
};

class ProfileBackend final : public ObservingBackend<ProfileBackend> {
 public:
  using ObservingBackend::ObservingBackend;

  /// Forgets what was timed so far (warm-up).
  void restart();
  /// Waits for what is under way and gives everything since restart().
  [[nodiscard]] const std::map<ProfileKey, ProfileEntry>& entries();
  [[nodiscard]] const std::map<ConvolutionCall, std::int64_t>& convolutions() const { return convolutions_; }

  [[nodiscard]] std::int64_t input_channels(const Conv2dSpec& spec) const override {
    return inner().input_channels(spec);
  }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void zero(const Tensor& x) override;
  void refresh_compute(Weight& weight) override;
  void finish_gradients() override;

  template <class Operation>
  void observe(const Operation& op);

 private:
  struct Timed {
    ProfileEntry* entry;
    std::unique_ptr<TimeMark> before, after;
  };

  template <class Call>
  void timed(const char* operation, const std::string& detail, const OperationCost& cost, const Call& call);

  std::map<ProfileKey, ProfileEntry> entries_;
  std::map<ConvolutionCall, std::int64_t> convolutions_;
  std::vector<Timed> under_way_;
};

}  // namespace convoy
