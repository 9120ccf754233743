// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of the CUDA backend: cuBLASLt's products with the bias in their epilogue. ReLU is a kernel of
// our own, which keeps NaN. cuBLAS reads memory by
// columns, so our row-major x [N, in] is X = x^T [in, N] to it, without moving anything; likewise Y [out, N] for y and
// W [in, out] for w [out, in]. Then
//   y  = x w^T   is  Y  = W^T X       (m = out, n = N,   k = in),  the bias one number per row of Y
//   dx = dy w    is  dX = W dY        (m = in,  n = N,   k = out)
//   dw = dy^T x  is  dW = X dY^T      (m = in,  n = out, k = N)
#include "layers/backend/cuda/conv/dense_kernels.h"
#include "layers/backend/cuda/conv/linear_plans.h"
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

namespace {

LinearPlans& plans_of(CudaState& state) {
  if (!state.linears) state.linears = std::make_shared<LinearPlans>();
  return *state.linears;
}

}  // namespace

void CudaBackend::run(const ops::LinearForward& op) {
  if (op.y.size() == 0) return;
  Tensor added;  // in the type of y, as the epilogue wants it
  if (op.bias != nullptr) {
    added = op.bias->compute;
    if (added.dtype() != op.y.dtype()) {
      added = tensor(op.bias->master.shape(), op.y.dtype());
      run(ops::Cast{op.bias->master, added});
    }
  }
  const std::int64_t batch = op.x.shape()[0], in = op.x.shape()[1], out = op.y.shape()[1];
  const MatrixProduct product{true, false, out, batch, in, op.x.dtype(), op.y.dtype(), op.bias != nullptr};
  plans_of(*state_).run(*state_, *this, product, op.w.compute.raw(), op.x.raw(), added.raw(), op.y.raw(), false);
  if (op.relu) run(ops::ReluForward{op.y, op.y});
}

void CudaBackend::run(const ops::LinearBackwardInput& op) {
  if (op.dx.size() == 0) return;
  const std::int64_t batch = op.dy.shape()[0], in = op.dx.shape()[1], out = op.dy.shape()[1];
  const MatrixProduct product{false, false, in, batch, out, op.dy.dtype(), op.dx.dtype()};
  plans_of(*state_).run(*state_, *this, product, op.w.backward.raw(), op.dy.raw(), nullptr, op.dx.raw(), false);
}

void CudaBackend::run(const ops::LinearBackwardWeight& op) {
  if (op.dbias) gpu::bias_gradient(*state_, *this, op.dy, op.dbias, op.accumulate);
  if (op.x.size() == 0) {
    if (!op.accumulate) zero(op.dw);
    return;
  }
  const std::int64_t batch = op.x.shape()[0], in = op.x.shape()[1], out = op.dy.shape()[1];
  const MatrixProduct product{false, true, in, out, batch, op.x.dtype(), DType::kF32};
  plans_of(*state_).run(*state_, *this, product, op.x.raw(), op.dy.raw(), nullptr, op.dw.raw(), op.accumulate);
}

}  // namespace convoy
