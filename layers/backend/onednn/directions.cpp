// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/directions.h"

namespace convoy {

void PrimitiveDirection::run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
                             const Tensor& to) {
  run_primitive(state, backend, bound_,
                {{from_, from.raw()}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_BIAS, bias}, {to_, to.raw()}});
}

void PrimitiveGradient::run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            const Tensor& dbias) {
  run_primitive(state, backend, bound_,
                {{DNNL_ARG_SRC, x.raw()},
                 {DNNL_ARG_DIFF_DST, dy.raw()},
                 {DNNL_ARG_DIFF_WEIGHTS, dw.raw()},
                 {DNNL_ARG_DIFF_BIAS, dbias.raw()}});
}

}  // namespace convoy
