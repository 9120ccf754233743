// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of the CUDA backend: cuBLASLt's products, bias and ReLU in their epilogue. cuBLAS reads memory by
// columns, so our row-major x [N, in] is X = x^T [in, N] to it, without moving anything; likewise Y [out, N] for y and
// W [in, out] for w [out, in]. Then
//   y  = x w^T   is  Y  = W^T X       (m = out, n = N,   k = in),  the bias one number per row of Y
//   dx = dy w    is  dX = W dY        (m = in,  n = N,   k = out)
//   dw = dy^T x  is  dW = X dY^T      (m = in,  n = out, k = N)
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/dense_kernels.h"
#include "layers/backend/cuda/linear_plans.h"

namespace convoy {

namespace {

LinearPlans& plans_of(CudaState& state) {
  if (!state.linears) state.linears = std::make_shared<LinearPlans>();
  return *state.linears;
}

Epilogue epilogue(bool bias, bool relu) {
  if (bias) return relu ? Epilogue::kBiasRelu : Epilogue::kBias;
  return relu ? Epilogue::kRelu : Epilogue::kNone;
}

}  // namespace

void CudaBackend::linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) {
  if (y.size() == 0) return;
  Tensor added;  // in the type of y, as the epilogue wants it
  if (bias != nullptr) {
    added = bias->compute;
    if (added.dtype() != y.dtype()) {
      added = tensor(bias->master.shape(), y.dtype());
      cast(bias->master, added);
    }
  }
  const std::int64_t batch = x.shape()[0], in = x.shape()[1], out = y.shape()[1];
  const MatrixProduct product{true, false, out, batch, in, x.dtype(), y.dtype(), epilogue(bias != nullptr, relu)};
  plans_of(*state_).run(*state_, *this, product, w.compute.raw(), x.raw(), added.raw(), y.raw(), false);
}

void CudaBackend::linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) {
  if (dx.size() == 0) return;
  const std::int64_t batch = dy.shape()[0], in = dx.shape()[1], out = dy.shape()[1];
  const MatrixProduct product{false, false, in, batch, out, dy.dtype(), dx.dtype(), Epilogue::kNone};
  plans_of(*state_).run(*state_, *this, product, w.backward.raw(), dy.raw(), nullptr, dx.raw(), false);
}

void CudaBackend::linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight&, const Tensor& dw,
                                         const Tensor& dbias, bool accumulate) {
  if (dbias) gpu::bias_gradient(*state_, *this, dy, dbias, accumulate);
  if (x.size() == 0) {
    if (!accumulate) zero(dw);
    return;
  }
  const std::int64_t batch = x.shape()[0], in = x.shape()[1], out = dy.shape()[1];
  const MatrixProduct product{false, true, in, out, batch, x.dtype(), DType::kF32, Epilogue::kNone};
  plans_of(*state_).run(*state_, *this, product, x.raw(), dy.raw(), nullptr, dw.raw(), accumulate);
}

}  // namespace convoy
