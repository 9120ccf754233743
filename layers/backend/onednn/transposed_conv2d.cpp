// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/transposed_conv2d.h"

#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_state.h"
#include "layers/backend/onednn/pointwise_conv2d.h"

namespace convoy {

namespace {

using dnnl::memory;

class TransposedConv2d final : public Direction {
 public:
  TransposedConv2d(BoundPrimitive convolution, const memory::desc& weights, std::int64_t stride)
      : Direction(weights), convolution_(std::move(convolution)), stride_(stride) {}

  void run(OnednnState& state, Backend& backend, const Tensor& dy, void* weight, void* /*bias*/,
           const Tensor& dx) override {
    const Shape& shape = dx.shape();
    Tensor packed = dx;
    if (stride_ > 1) packed = backend.tensor({shape[0], shape[1], dy.shape()[2], dy.shape()[3]}, dx.dtype());
    run_primitive(state, backend, convolution_,
                  {{DNNL_ARG_SRC, dy.raw()}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, packed.raw()}});
    if (stride_ > 1) spread_pixels(packed, stride_, dx);
  }

 private:
  BoundPrimitive convolution_;
  std::int64_t stride_;
};

}  // namespace

bool has_transposed_conv2d(const Conv2dSpec& spec) {
  return spec.padding < spec.kernel && (spec.stride == 1 || spec.kernel == 1);
}

std::unique_ptr<Direction> make_transposed_conv2d(OnednnState& state, const Conv2dSpec& spec, const Shape& dx,
                                                  DType compute) {
  using Tag = memory::format_tag;
  const auto type = onednn_type(compute);
  const std::int64_t shrinks = spec.kernel - 1 - 2 * spec.padding;  // by so much, then by the stride
  const std::int64_t height = (dx[2] - shrinks - 1) / spec.stride + 1, width = (dx[3] - shrinks - 1) / spec.stride + 1;
  const memory::desc dy({dx[0], spec.out_channels, height, width}, type, Tag::nhwc),
      packed({dx[0], spec.in_channels, height + shrinks, width + shrinks}, type, Tag::nhwc),
      transposed({spec.in_channels, spec.out_channels, spec.kernel, spec.kernel}, type, Tag::any);
  const std::int64_t padding = spec.kernel - 1 - spec.padding;
  const auto pd = dnnl_compat::convolution_forward(state.engine, dy, transposed, memory::desc(), packed,
                                                   {{1, 1}, {padding, padding}}, user_scratchpad());
  auto bound = bind_primitive(state, dnnl::convolution_forward(pd), pd.scratchpad_desc(),
                              {{DNNL_ARG_SRC, dy}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, packed}});
  return std::make_unique<TransposedConv2d>(std::move(bound), pd.weights_desc().permute_axes({1, 0, 2, 3}),
                                            spec.stride);
}

}  // namespace convoy
