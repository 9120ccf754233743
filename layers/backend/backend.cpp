// SPDX-License-Identifier: Apache-2.0
//
// What backends share: the host's clock as their mark, checksums on the host, operations and their parts one after the
// other.
#include "layers/backend/backend.h"

#include <chrono>
#include <cstddef>
#include <vector>

#include "layers/backend/checksum.h"

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

std::uint64_t Backend::checksum(const Tensor& x, std::int64_t first) {
  std::vector<std::byte> host(x.bytes());
  copy_to_host(x, host.data());
  return memory_checksum(host.data(), host.size(), first);
}

std::unique_ptr<TimeMark> Backend::mark() { return std::make_unique<HostMark>(); }

Tensor Backend::zeros(const Shape& shape, DType dtype) {
  Tensor x = tensor(shape, dtype);
  zero(x);
  return x;
}

Tensor Backend::run_prologue(const ops::BatchNormApply& op) {
  Tensor y = op.y ? op.y : tensor(op.x.shape(), op.x.dtype());
  run(op.with(op.residual, y));
  return y;
}

bool Backend::run_apart(const ops::Conv2dForward& op) {
  if (op.prologue != nullptr) {  // without it the epilogue may be fused
    const Tensor x = run_prologue(*op.prologue);
    run(ops::Conv2dForward{op.spec, x, op.w, op.bias, op.y, nullptr, op.epilogue});
    return true;
  }
  if (op.epilogue == nullptr) return false;
  run(op.alone(op.x));
  run(*op.epilogue);
  return true;
}

bool Backend::run_apart(const ops::Conv2dBackwardInput& op) {
  if (op.epilogue == nullptr) return false;
  run(op.alone());
  run(*op.epilogue);
  return true;
}

bool Backend::run_apart(const ops::Conv2dBackwardWeight& op) {
  if (op.prologue == nullptr) return false;
  run(op.alone(run_prologue(*op.prologue)));
  return true;
}

bool Backend::run_apart(const ops::BatchNormApply& op) {
  if (op.prologue == nullptr && op.epilogue == nullptr) return false;
  const Tensor residual = op.prologue != nullptr ? run_prologue(*op.prologue) : op.residual;
  const Tensor y = op.y ? op.y : tensor(op.x.shape(), op.x.dtype());
  run(op.with(residual, y));
  if (op.epilogue != nullptr) run(ops::MaxPoolForward{op.epilogue->spec, y, op.epilogue->y, op.epilogue->argmax});
  return true;
}

Tensor Backend::run_prologue(const ops::MaxPoolBackward& op, const Shape& shape) {
  Tensor dx = op.dx ? op.dx : tensor(shape, op.dy.dtype());
  run(ops::MaxPoolBackward{op.spec, op.dy, op.argmax, dx});
  return dx;
}

bool Backend::run_apart(const ops::BatchNormBackwardReduce& op) {
  if (op.prologue == nullptr) return false;
  run(op.with(run_prologue(*op.prologue, op.x.shape())));
  return true;
}

bool Backend::run_apart(const ops::BatchNormBackwardApply& op) {
  if (op.prologue == nullptr) return false;
  run(op.with(run_prologue(*op.prologue, op.x.shape())));
  return true;
}

void Backend::add_residual(const ops::Conv2dBackwardInput& op) {
  const Tensor gradient = op.residual.raw() == op.dx.raw() ? tensor(op.dx.shape(), op.dx.dtype()) : op.dx;
  run(ops::Conv2dBackwardInput{op.spec, op.dy, op.w, gradient});
  run(ops::Add{gradient.raw() == op.dx.raw() ? op.residual : gradient, op.dx});
}

}  // namespace convoy
