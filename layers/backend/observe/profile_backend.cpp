// SPDX-License-Identifier: Apache-2.0
//
// Every operation runs between two marks. Costs count each operand once: an operation that reads a tensor twice, or one
// that finds it in a cache, shows as slower or faster than the memory.
#include "layers/backend/observe/profile_backend.h"

#include "layers/base/profile_range.h"

namespace convoy {

namespace {

// Bytes of all operands, and the shape of the first one.
struct Operands : OperandVisitor {
  double bytes = 0;
  const Tensor* first = nullptr;

  const Tensor& count(const Tensor& x, double times = 1) {
    if (first == nullptr) first = &x;
    bytes += times * bytes_of(x);
    return x;
  }
  const Tensor& in(const Tensor& x) { return count(x); }
  const Weight& in(const Weight& w) {
    bytes += bytes_of(w.compute);
    return w;
  }
  const Weight* in(const Weight* w) { return w != nullptr ? &in(*w) : nullptr; }
  const Tensor& out(const char* /*name*/, const Tensor& y) { return count(y); }
  const Tensor& in_out(const char* /*name*/, const Tensor& y) { return count(y, 2); }
  const Tensor& gradient(const char* /*name*/, const Tensor& dw, const Weight& /*w*/, bool accumulate) {
    return count(dw, accumulate ? 2 : 1);
  }
  const Tensor& gradient(const char* /*name*/, const Tensor& dbias, bool accumulate) {
    return count(dbias, accumulate ? 2 : 1);
  }
};

ConvolutionCall call_of(const ops::Conv2dForward& op) {
  return {ConvolutionCall::Direction::kForward, op.spec, op.input_shape(), op.bias != nullptr};
}
ConvolutionCall call_of(const ops::Conv2dBackwardInput& op) {
  return {ConvolutionCall::Direction::kBackwardInput, op.spec, op.dx.shape(), false};
}
ConvolutionCall call_of(const ops::Conv2dBackwardWeight& op) {
  return {ConvolutionCall::Direction::kBackwardWeight, op.spec, op.input_shape(), static_cast<bool>(op.dbias)};
}

}  // namespace

void ProfileBackend::restart() {
  static_cast<void>(entries());
  entries_.clear();
  convolutions_.clear();
}

const std::map<ProfileKey, ProfileEntry>& ProfileBackend::entries() {
  inner().synchronize();
  for (const Timed& timed : under_way_) timed.entry->seconds += timed.after->seconds_since(*timed.before);
  under_way_.clear();
  return entries_;
}

template <class Call>
void ProfileBackend::timed(const char* operation, const std::string& detail, const OperationCost& cost,
                           const Call& call) {
  ProfileEntry& entry = entries_[{operation, ProfileRange::innermost(), detail}];
  ++entry.calls;
  entry.cost.flops += cost.flops;
  entry.cost.bytes += cost.bytes;
  Timed& timed = under_way_.emplace_back();
  timed.entry = &entry;
  timed.before = inner().mark();
  call();
  timed.after = inner().mark();
}

template <class Operation>
void ProfileBackend::observe(const Operation& op) {
  Operands operands;
  static_cast<void>(op.visit(operands));
  OperationCost cost{0, operands.bytes};
  if constexpr (requires { op.flops(); }) cost.flops = op.flops();
  std::string detail;
  if constexpr (requires { op.detail(); }) {
    detail = op.detail();
  } else {
    detail = operands.first->shape().str();
  }
  if constexpr (requires { call_of(op); }) ++convolutions_[call_of(op)];
  timed(Operation::kName, detail, cost, [&] { inner().run(op); });
}

void ProfileBackend::copy_from_host(const void* source, const Tensor& destination) {
  timed("copy_from_host", destination.shape().str(), {0, bytes_of(destination)},
        [&] { inner().copy_from_host(source, destination); });
}

void ProfileBackend::zero(const Tensor& x) {
  timed("zero", x.shape().str(), {0, bytes_of(x)}, [&] { inner().zero(x); });
}

void ProfileBackend::finish_gradients() {
  if (!inner().has_unfinished_gradients()) return;
  timed("finish_gradients", "", {}, [&] { inner().finish_gradients(); });
}

void ProfileBackend::refresh_compute(Weight& weight) {
  const bool two = weight.backward.raw() != weight.compute.raw() && weight.backward.raw() != weight.master.raw();
  const double copies = bytes_of(weight.compute) + (two ? bytes_of(weight.backward) : 0);
  timed("refresh_compute", weight.layout->shape().str(), {0, bytes_of(weight.master) + copies},
        [&] { inner().refresh_compute(weight); });
}

}  // namespace convoy
