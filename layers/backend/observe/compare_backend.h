// SPDX-License-Identifier: Apache-2.0
//
// Two backends side by side: every operation runs on the subject, whose memory all tensors have, and again on the
// reference from copies of the same inputs; the first result that differs by more than its tolerance throws an Error
// with the operation, its shapes, the output and the difference. Outputs that an operation sets are filled with NaN
// before, so that it shows when one is left unwritten, or read. Slow, for finding what is wrong with a backend; work
// is never recorded. Invariant: what callers see is the subject's result.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "layers/backend/observe/observing_backend.h"

namespace convoy {

class CompareBackend final : public ObservingBackend<CompareBackend> {
 public:
  /// Both outlive this; the reference computes in float32. `tolerance`: largest |subject - reference| / |reference| by
  /// norm over an output (Euclidean), 0 for the default of the subject's compute type: 1e-5 for float32, 1e-2 for
  /// bfloat16 and float16, of whose inputs the reference gets the rounded values. Integers must be equal.
  CompareBackend(Backend& subject, Backend& reference, double tolerance = 0);

  /// Operations compared so far, by name, with the largest relative difference of each.
  struct Seen {
    std::int64_t calls = 0;
    double largest_difference = 0;
  };
  [[nodiscard]] const std::map<std::string, Seen>& seen() const { return seen_; }

  [[nodiscard]] std::string name() const override { return "compare"; }
  [[nodiscard]] std::string description() const override;

  void copy_from_host(const void* source, const Tensor& destination) override;
  void zero(const Tensor& x) override;
  bool all_finite(const Tensor& x) override;

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in, std::int64_t out, std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  void refresh_compute(Weight& weight) override;

  template <class Operation>
  void observe(const Operation& op);

 private:
  friend class Comparison;  // comparison.h: one operation

  [[nodiscard]] Backend& subject() { return inner(); }

  Backend& reference_;
  double tolerance_;
  std::map<std::string, Seen> seen_;
};

}  // namespace convoy
