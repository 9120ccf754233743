// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/observe/traffic_backend.h"

#include <algorithm>
#include <set>

#include "layers/backend/cuda/conv/kernel_counts.h"
#include "layers/backend/observe/observing_backend.h"
#include "layers/base/profile_range.h"

namespace convoy {

namespace {

double bytes_of(const Tensor& x) { return x ? static_cast<double>(x.bytes()) : 0; }

// The operands of an operation and of its parts, one after the other: each once in each role, and none that is read
// after it was set.
class Operands : public OperandVisitor {
 public:
  /// Bytes since the last call.
  double take() { return std::exchange(bytes_, 0.0); }

  const Tensor& in(const Tensor& x) {
    if (x && !set_.contains(x.raw()) && read_.insert(x.raw()).second) bytes_ += bytes_of(x);
    return x;
  }
  const Weight& in(const Weight& w) {
    in(w.compute);
    return w;
  }
  const Weight* in(const Weight* w) { return w != nullptr ? &in(*w) : nullptr; }
  const Tensor& out(const char* /*name*/, const Tensor& y) {
    if (y && set_.insert(y.raw()).second) bytes_ += bytes_of(y);
    return y;
  }
  const Tensor& in_out(const char* /*name*/, const Tensor& y) {
    bytes_ += 2 * bytes_of(y);
    return y;
  }
  const Tensor& gradient(const char* name, const Tensor& dw, const Weight& /*w*/, bool accumulate) {
    return gradient(name, dw, accumulate);
  }
  const Tensor& gradient(const char* name, const Tensor& dbias, bool accumulate) {
    return accumulate ? in_out(name, dbias) : out(name, dbias);
  }
  /// x as a convolution of so many input channels reads it: itself, or a padded copy that is written first.
  void padded_input(const Tensor& x, std::int64_t channels) {
    in(x);
    if (x.shape()[1] != channels) bytes_ += 2 * padded_bytes(x, channels);
  }
  static double padded_bytes(const Tensor& x, std::int64_t channels) {
    return bytes_of(x) / static_cast<double>(x.shape()[1]) * static_cast<double>(channels);
  }

 private:
  std::set<const void*> read_, set_;
  double bytes_ = 0;
};

TrafficKind kind_of(const ops::LinearBackwardInput& /*op*/) { return TrafficKind::kProducts; }
TrafficKind kind_of(const ops::BatchNormStatistics& /*op*/) { return TrafficKind::kStatistics; }
TrafficKind kind_of(const ops::BatchNormBackwardReduce& /*op*/) { return TrafficKind::kBackwardReduce; }
TrafficKind kind_of(const ops::BatchNormBackwardApply& /*op*/) { return TrafficKind::kBackwardApply; }
TrafficKind kind_of(const ops::BatchNormBackwardResidual& /*op*/) { return TrafficKind::kJoins; }
TrafficKind kind_of(const ops::Add& /*op*/) { return TrafficKind::kJoins; }
template <class Operation>
TrafficKind kind_of(const Operation& /*op*/) {
  return TrafficKind::kRest;
}

double least_bytes(const Shape& x, const Shape& y, const Shape& w, DType compute) {
  return static_cast<double>(x.size() + y.size() + w.size()) * static_cast<double>(dtype_size(compute));
}
double least_bytes(const ops::LinearBackwardInput& op, DType compute) {
  return least_bytes(op.dx.shape(), op.dy.shape(), op.w.layout->shape(), compute);
}
template <class Operation>
double least_bytes(const Operation& /*op*/, DType /*compute*/) {
  return 0;
}
// Of a convolution with this input, which may have padded channels.
double least_bytes(const Conv2dSpec& spec, Shape input, DType compute) {
  input.set(1, spec.in_channels);
  return least_bytes(input, spec.output_shape(input), spec.weight_shape(), compute);
}

double count_of(std::int64_t value) { return static_cast<double>(value); }

// Samples times pixels.
double pixels(const Shape& shape) { return count_of(shape.size() / shape[1]); }

// Elements of the weights that one output channel has, and the outputs of a group.
double filter(const Conv2dSpec& spec) { return count_of(spec.weight_shape().size()) / count_of(spec.out_channels); }
double group_outputs(const Conv2dSpec& spec) { return count_of(spec.out_channels) / count_of(spec.groups); }

GemmShape gemm_of(const ops::LinearForward& op) {
  return {count_of(op.x.shape()[0]), count_of(op.y.shape()[1]), count_of(op.x.shape()[1])};
}
GemmShape gemm_of(const ops::LinearBackwardInput& op) {
  return {count_of(op.dy.shape()[0]), count_of(op.dx.shape()[1]), count_of(op.dy.shape()[1])};
}
GemmShape gemm_of(const ops::LinearBackwardWeight& op) {
  return {count_of(op.x.shape()[1]), count_of(op.dy.shape()[1]), count_of(op.x.shape()[0]), 1, true};
}
GemmShape gemm_of(const ops::Conv2dForward& op) {
  return {pixels(op.y.shape()), group_outputs(op.spec), filter(op.spec), count_of(op.spec.groups)};
}
// As many products as the forward has, shared among the pixels of the input.
GemmShape gemm_of(const ops::Conv2dBackwardInput& op) {
  const double columns = count_of(op.spec.in_channels) / count_of(op.spec.groups);
  const double rows = pixels(op.dx.shape());
  return {rows, columns, op.flops() / (2 * rows * columns * count_of(op.spec.groups)), count_of(op.spec.groups)};
}
GemmShape gemm_of(const ops::Conv2dBackwardWeight& op) {
  return {filter(op.spec), group_outputs(op.spec), pixels(op.dy.shape()), count_of(op.spec.groups), true};
}
template <class Operation>
GemmShape gemm_of(const Operation& /*op*/) {
  return {};
}

}  // namespace

void* TrafficBackend::Addresses::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 4096;
  void* address = reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr)
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return address;
}

std::string TrafficBackend::description() const {
  return fmt::format("CUDA backend, {}, {}", dtype_name(rules_.compute),
                     rules_.fuses_batch_norms() ? "fused batch norms" : "batch norms apart");
}

std::map<TrafficKey, Moved> TrafficBackend::traffic() const {
  std::map<TrafficKey, Moved> sums;
  for (const CountedOperation& operation : operations_) sums[operation.key] += operation.moved;
  return sums;
}

void TrafficBackend::restart() {
  operations_.clear();
  pending_.clear();
  zeroed_ = 0;
}

void TrafficBackend::add(TrafficKind kind, const Moved& moved, const GemmShape& gemm) {
  operations_.push_back({{ProfileRange::outermost(), ProfileRange::innermost(), kind}, moved, gemm});
}

// Copies are before a recorded step, not in it. Large ones arrive in a buffer first, beside computation (uploads.h).
void TrafficBackend::copy_from_host(const void* /*source*/, const Tensor& destination) {
  constexpr double kSmall = 256 << 10;
  const double bytes = bytes_of(destination);
  add(TrafficKind::kRest, {bytes > kSmall ? 3 * bytes : bytes, 0, 0});
}

void TrafficBackend::zero(const Tensor& x) {
  if (x.size() > 0) add(TrafficKind::kRest, {bytes_of(x), 0, 1});
}

Tensor TrafficBackend::zeros(const Shape& shape, DType dtype) {
  Tensor x = tensor(shape, dtype);
  const auto bytes = static_cast<std::int64_t>(x.bytes());
  if (bytes > kZeroedPart) {
    zero(x);
    return x;
  }
  if (bytes > zeroed_) {
    zeroed_ = kZeroedTogether;
    add(TrafficKind::kRest, {static_cast<double>(zeroed_), 0, 1});
  }
  zeroed_ -= (bytes + kZeroedAlignment - 1) / kZeroedAlignment * kZeroedAlignment;
  return x;
}

bool TrafficBackend::all_finite(const Tensor& x) {
  add(TrafficKind::kRest, {bytes_of(x), 0, 1});
  return true;
}

void TrafficBackend::finish_gradients() {
  double bytes = 0;
  for (const std::int64_t elements : pending_) {
    bytes += static_cast<double>(elements) * static_cast<double>(dtype_size(rules_.compute) + dtype_size(DType::kF32));
  }
  const auto count = static_cast<std::int64_t>(pending_.size());
  if (count > 0) add(TrafficKind::kGradientCasts, {bytes, 0, (count + kCastTogether - 1) / kCastTogether});
  pending_.clear();
}

std::int64_t TrafficBackend::input_channels(const Conv2dSpec& spec) const {
  return padded_channels(spec, rules_.compute);
}

std::unique_ptr<WeightLayout> TrafficBackend::conv2d_layout(const Conv2dSpec& spec, const Shape& /*input*/) {
  const Shape shape = spec.weight_shape();
  return std::make_unique<CudaWeightLayout>(shape, spec.groups == 1 ? input_channels(spec) : shape[1]);
}

std::unique_ptr<WeightLayout> TrafficBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                            std::int64_t /*batch*/) {
  return std::make_unique<WeightLayout>(Shape{out_features, in_features}, out_features * in_features);
}

std::unique_ptr<WeightLayout> TrafficBackend::vector_layout(std::int64_t count) {
  return std::make_unique<WeightLayout>(Shape{count}, count);
}

void TrafficBackend::refresh_compute(Weight& weight) {
  const bool converted = weight.layout->shape().rank() > 1 && is_16_bit(rules_.compute);
  if (!converted) {
    weight.compute = weight.backward = weight.master;
    return;
  }
  if (!weight.compute) weight.compute = tensor({weight.layout->elements()}, rules_.compute);
  run(ops::Cast{weight.master, weight.compute});
  weight.backward = weight.compute;
}

template <class Operation>
void TrafficBackend::count(const Operation& op) {
  Operands operands;
  static_cast<void>(op.visit(operands));
  add(kind_of(op), {operands.take(), least_bytes(op, rules_.compute), kernels_of(op, rules_.compute)}, gemm_of(op));
}

// ReLU is another pass.
void TrafficBackend::count(const ops::LinearForward& op) {
  Operands operands;
  static_cast<void>(op.visit(operands));
  const double relu = op.relu ? 2 * bytes_of(op.y) : 0;
  add(TrafficKind::kProducts,
      {operands.take() + relu, least_bytes(op.x.shape(), op.y.shape(), op.w.layout->shape(), rules_.compute),
       kernels_of(op, rules_.compute)},
      gemm_of(op));
}

// The sum of the bias is another pass.
void TrafficBackend::count(const ops::LinearBackwardWeight& op) {
  Operands operands;
  operands.in(op.x);
  operands.in(op.dy);
  operands.gradient("dw", op.dw, op.w, op.accumulate);
  operands.gradient("dbias", op.dbias, op.accumulate);
  const double sums = op.dbias ? bytes_of(op.dy) : 0;
  add(TrafficKind::kProducts,
      {operands.take() + sums, least_bytes(op.x.shape(), op.dy.shape(), op.w.layout->shape(), rules_.compute),
       kernels_of(op, rules_.compute)},
      gemm_of(op));
}

// A bias is added in another pass.
void TrafficBackend::count(const ops::Conv2dForward& op) {
  if (!rules_.fuses(op) && run_apart(op)) return;
  const ops::Conv2dForward alone = op.alone(op.prologue != nullptr ? op.prologue->x : op.x);
  Operands operands;
  operands.padded_input(alone.x, padded_channels(op.spec, rules_.compute));
  operands.in(op.w);
  operands.in(op.bias);
  operands.out("y", op.y);
  const int kernels = kernels_of(alone, rules_.compute);
  const double bias = op.bias != nullptr ? 2 * bytes_of(op.y) : 0;
  add(TrafficKind::kProducts, {operands.take() + bias, least_bytes(op.spec, op.input_shape(), rules_.compute), kernels},
      gemm_of(op));
  if (op.prologue != nullptr) {
    operands.in(op.prologue->coefficients);
    add(TrafficKind::kApply, {operands.take(), 0, 0});
  }
  if (op.epilogue != nullptr) {
    const Tensor sums = zeros({2, op.spec.out_channels}, DType::kF32);
    operands.in_out("sums", sums);
    static_cast<void>(op.epilogue->visit(operands));
    add(TrafficKind::kStatistics, {operands.take(), 0, kernels_of(op, rules_.compute) - kernels});
  }
}

void TrafficBackend::count(const ops::Conv2dBackwardInput& op) {
  if (!rules_.fuses(op)) {
    if (run_apart(op)) return;
    if (op.residual) return add_residual(op);
  }
  Operands operands;
  if (op.residual) {
    operands.in(op.residual);
    add(TrafficKind::kJoins, {operands.take(), 0, 0});
  }
  operands.in(op.dy);
  operands.in(op.w);
  operands.out("dx", op.dx);
  double bytes = operands.take();
  const std::int64_t channels = padded_channels(op.spec, rules_.compute);
  if (op.dx.shape()[1] != channels) bytes += 2 * Operands::padded_bytes(op.dx, channels);
  add(TrafficKind::kProducts,
      {bytes, least_bytes(op.spec, op.dx.shape(), rules_.compute), kernels_of(op, rules_.compute)}, gemm_of(op));
  if (op.epilogue == nullptr) return;
  static_cast<void>(op.epilogue->visit(operands));
  add(TrafficKind::kBackwardReduce, {operands.take(), 0, 0});
}

// The gradient leaves the convolution in the compute type, except in float32 where it is set. The sum of the bias is
// another pass.
void TrafficBackend::count(const ops::Conv2dBackwardWeight& op) {
  if (!rules_.fuses(op) && run_apart(op)) return;
  if (op.accumulate) finish_gradients();
  Operands operands;
  operands.padded_input(op.prologue != nullptr ? op.prologue->x : op.x, padded_channels(op.spec, rules_.compute));
  operands.in(op.dy);
  if (op.dbias) operands.gradient("dbias", op.dbias, op.accumulate);
  const auto elements = static_cast<double>(op.dw.size());
  const double written = elements * static_cast<double>(dtype_size(rules_.compute));
  const double sums = op.dbias ? bytes_of(op.dy) : 0;
  const int kernels = kernels_of(op, rules_.compute) - (op.accumulate ? 1 : 0);
  add(TrafficKind::kProducts,
      {operands.take() + written + sums, least_bytes(op.spec, op.input_shape(), rules_.compute), kernels}, gemm_of(op));
  if (op.prologue != nullptr) {
    operands.in(op.prologue->rounded);
    add(TrafficKind::kApply, {operands.take(), 0, 0});
  }
  if (op.accumulate) {
    add(TrafficKind::kGradientCasts, {written + 2 * bytes_of(op.dw), 0, 1});
  } else if (is_16_bit(rules_.compute)) {
    pending_.push_back(op.dw.size());
  }
}

void TrafficBackend::count(const ops::BatchNormApply& op) {
  if (op.mask != nullptr) *op.mask = op.y;
  if (!rules_.fuses(op) && run_apart(op)) return;
  Operands operands;
  static_cast<void>(op.visit(operands));
  add(TrafficKind::kApply, {operands.take(), 0, kernels_of(op, rules_.compute)});
}

#define CONVOY_COUNT(Operation) \
  void TrafficBackend::run(const ops::Operation& op) { count(op); }
CONVOY_OPERATIONS(CONVOY_COUNT)
#undef CONVOY_COUNT

}  // namespace convoy
