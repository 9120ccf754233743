// SPDX-License-Identifier: Apache-2.0
//
// Convolutions over channels-last activations by oneDNN's direct algorithm. Private to layers/backend/onednn.
#pragma once

#include <memory>

#include "layers/backend/onednn/directions.h"

namespace convoy {

/// y of x [n, in, h, w] with the weight in this format, which may be `any`; bias: whether there is one.
std::unique_ptr<Direction> make_direct_forward(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                               DType compute, const dnnl::memory::desc& weights, bool bias);

/// dx [n, in, h, w] of dy.
std::unique_ptr<Direction> make_direct_backward_input(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                      DType compute);

/// bias: whether its gradient is asked for, too.
std::unique_ptr<WeightGradient> make_direct_gradient(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                     DType compute, bool bias);

/// In which format the weight gradient is written.
[[nodiscard]] dnnl::memory::desc direct_gradient_format(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                        DType compute);

/// In which format the forward direction reads a weight that is stored as `native`: in float32 that one, which saves a
/// copy, wherever oneDNN has a compiled kernel for it (as fast as that of its own choice, within 2 % for the layers of
/// ResNet-50).
[[nodiscard]] dnnl::memory::desc direct_forward_format(OnednnState& state, const Conv2dSpec& spec, const Shape& x,
                                                       DType compute, const dnnl::memory::desc& native);

}  // namespace convoy
