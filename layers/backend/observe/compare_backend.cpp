// SPDX-License-Identifier: Apache-2.0
//
// Construction of the compare backend, host copies, and weights on their way in and out: each is checked by reading
// back what was written.
#include "layers/backend/observe/compare_backend.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "layers/backend/observe/comparison.h"
#include "layers/backend/observe/host_values.h"
#include "layers/base/error.h"

namespace convoy {

CompareBackend::CompareBackend(Backend& subject, Backend& reference, double tolerance)
    : ObservingBackend(subject), reference_(reference), tolerance_(tolerance) {
  if (reference.compute_type() != DType::kF32) {
    fail_usage(
        "the compare backend needs a reference that computes in float32, and the {} backend given computes in {}",
        reference.name(), dtype_name(reference.compute_type()));
  }
  if (tolerance_ == 0) tolerance_ = subject.compute_type() == DType::kF32 ? 1e-5 : 1e-2;
}

std::string CompareBackend::description() const {
  return fmt::format("{}, compared with {} (tolerance {:.0e})", ObservingBackend::description(),
                     reference_.description(), tolerance_);
}

namespace {

std::string typed(const Tensor& x) { return fmt::format("{} {}", dtype_name(x.dtype()), x.shape().str()); }

// The first operand, for the text of an operation that has no detail().
struct FirstOperand : OperandVisitor {
  const Tensor* first = nullptr;
  const Tensor& take(const Tensor& x) {
    if (first == nullptr) first = &x;
    return x;
  }
  using OperandVisitor::in;
  const Tensor& in(const Tensor& x) { return take(x); }
  const Tensor& in_out(const char* /*name*/, const Tensor& y) { return take(y); }
};

template <class Operation>
std::string text_of(const Operation& op) {
  if constexpr (requires { op.detail(); }) {
    return fmt::format("{}, {}", Operation::kName, op.detail());
  } else {
    FirstOperand operand;
    static_cast<void>(op.visit(operand));
    return fmt::format("{}, {}", Operation::kName, typed(*operand.first));
  }
}

}  // namespace

template <class Operation>
void CompareBackend::observe(const Operation& op) {
  Comparison comparison(*this, Operation::kName, text_of(op));
  static_cast<void>(op.visit(comparison));
  auto own = comparison.subject(), other = comparison.reference();
  subject().run(op.visit(own));
  subject().finish_gradients();
  reference_.run(op.visit(other));
  if constexpr (requires { op.mask; }) {
    if constexpr (std::is_same_v<decltype(op.mask), Tensor*>) {
      if (op.mask != nullptr) *op.mask = op.y;
    }
  }
  comparison.compare();
}

void CompareBackend::zero(const Tensor& x) {
  Comparison comparison(*this, "zero", "zero, " + typed(x));
  comparison.out("x", x);
  subject().zero(x);
  reference_.zero(comparison.reference().in(x));
  comparison.compare();
}

bool CompareBackend::all_finite(const Tensor& x) {
  Comparison comparison(*this, "all_finite", "all_finite, " + typed(x));
  comparison.in(x);
  const bool own = subject().all_finite(x), other = reference_.all_finite(comparison.reference().in(x));
  comparison.compare();
  if (own != other) {
    fail("all_finite, {}: the {} backend says {}, the {} backend {}", typed(x), subject().name(), own,
         reference_.name(), other);
  }
  return own;
}

void CompareBackend::copy_from_host(const void* source, const Tensor& destination) {
  subject().copy_from_host(source, destination);
  const std::vector<std::byte> back = host_bytes(subject(), destination);
  if (!std::equal(back.begin(), back.end(), static_cast<const std::byte*>(source))) {
    fail("copy_from_host, {} {}: copy_to_host of the {} backend brings other bytes back",
         dtype_name(destination.dtype()), destination.shape().str(), subject().name());
  }
  ++seen_["copy_from_host"].calls;
}

std::unique_ptr<WeightLayout> CompareBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& input) {
  return std::make_unique<PairedLayout>(subject().conv2d_layout(spec, input), reference_.conv2d_layout(spec, input));
}

std::unique_ptr<WeightLayout> CompareBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                            std::int64_t batch) {
  return std::make_unique<PairedLayout>(subject().linear_layout(in_features, out_features, batch),
                                        reference_.linear_layout(in_features, out_features, batch));
}

std::unique_ptr<WeightLayout> CompareBackend::vector_layout(std::int64_t count) {
  return std::make_unique<PairedLayout>(subject().vector_layout(count), reference_.vector_layout(count));
}

void CompareBackend::import_weight(const WeightLayout& layout, const float* host, const Tensor& native) {
  const WeightLayout& own = *paired_layout(layout).subject;
  const std::vector<float> spoiled(static_cast<std::size_t>(own.elements()), std::numeric_limits<float>::quiet_NaN());
  subject().copy_from_host(spoiled.data(), native);
  subject().import_weight(own, host, native);
  const std::string what = fmt::format("import_weight, {}", own.shape().str());
  const std::vector<float> back = exported_weight(subject(), own, native, what);
  if (std::memcmp(back.data(), host, back.size() * sizeof(float)) != 0) {
    fail("{}: export_weight of the {} backend brings other values back", what, subject().name());
  }
  ++seen_["import_weight"].calls;
}

void CompareBackend::export_weight(const WeightLayout& layout, const Tensor& native, float* host) {
  subject().export_weight(*paired_layout(layout).subject, native, host);
}

void CompareBackend::refresh_compute(Weight& weight) {
  const WeightLayout* layout = weight.layout;
  weight.layout = paired_layout(*layout).subject.get();
  subject().refresh_compute(weight);
  weight.layout = layout;
}

}  // namespace convoy
