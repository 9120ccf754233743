// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/transposed_conv2d.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

using dnnl::memory;

bool has_transposed_conv2d(const Conv2dSpec& spec) {
  return spec.padding.height < spec.kernel.height && spec.stride == 1;
}

std::unique_ptr<Direction> make_transposed_conv2d(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                  DType compute) {
  using Tag = memory::format_tag;
  const auto type = onednn_type(compute);
  const Shape y = spec.output_shape(dx);
  const memory::desc from({y[0], y[1], y[2], y[3]}, type, Tag::nhwc), to({dx[0], dx[1], dx[2], dx[3]}, type, Tag::nhwc),
      transposed({spec.in_channels, spec.out_channels, spec.kernel.height, spec.kernel.width}, type, Tag::any);
  const std::int64_t padding = spec.kernel.height - 1 - spec.padding.height;
  const auto pd = dnnl_compat::convolution_forward(state.engine, from, transposed, memory::desc(), to,
                                                   {{1, 1}, {padding, padding}}, user_scratchpad());
  auto bound = bind_primitive(state, dnnl::convolution_forward(pd), pd.scratchpad_desc(),
                              {{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, to}});
  return std::make_unique<PrimitiveDirection>(std::move(bound), pd.weights_desc().permute_axes({1, 0, 2, 3}),
                                              DNNL_ARG_SRC, DNNL_ARG_DST);
}

}  // namespace convoy
