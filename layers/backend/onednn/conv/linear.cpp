// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of the CPU backend: oneDNN's inner product with the bias in its epilogue. ReLU is a pass
// of our own: oneDNN's post-op turns NaN into 0. The weight formats are
// chosen once, as in conv2d.cpp, by rules of shape alone.
#include <omp.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "layers/backend/onednn/conv/pointwise_conv2d.h"
#include "layers/backend/onednn/conv/upcast.h"
#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

namespace {

using dnnl::memory;
using Tag = dnnl::memory::format_tag;

struct LinearShapes {
  memory::desc src, dst, weights, weights_f32, bias_f32;
  dnnl::primitive_attr attributes;
};

LinearShapes linear_shapes(std::int64_t batch, std::int64_t in, std::int64_t out, DType compute) {
  const auto type = onednn_type(compute);
  const Tag format = row_product_format(batch, in, out, compute);
  LinearShapes s{memory::desc({batch, in}, type, Tag::nc),
                 memory::desc({batch, out}, type, Tag::nc),
                 memory::desc({out, in}, type, format),
                 memory::desc({out, in}, memory::data_type::f32, format),
                 memory::desc({out}, memory::data_type::f32, Tag::a),
                 user_scratchpad()};
  return s;
}

WeightedPlan& plan_for(OnednnState& state, std::int64_t batch, const Weight& w, bool bias) {
  return state.plans[{1, batch, w.layout->shape()[0], w.layout->shape()[1], bias}];
}

const OnednnWeightLayout& layout_of(const Weight& w) { return static_cast<const OnednnWeightLayout&>(*w.layout); }

// While it lives, oneDNN makes and runs primitives for one thread if the product of these sizes is small: to start a
// team and to wait for it takes microseconds, in which a core does this many multiplications.
class TeamOfItsSize {
 public:
  TeamOfItsSize(std::int64_t batch, std::int64_t in, std::int64_t out) {
    if (batch * in * out < kSmall) omp_set_num_threads(1);
  }
  ~TeamOfItsSize() { omp_set_num_threads(threads_); }
  TeamOfItsSize(const TeamOfItsSize&) = delete;
  TeamOfItsSize& operator=(const TeamOfItsSize&) = delete;

 private:
  static constexpr std::int64_t kSmall = std::int64_t{1} << 17;
  int threads_ = omp_get_max_threads();
};

}  // namespace

std::unique_ptr<WeightLayout> OnednnBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                           std::int64_t batch) {
  const TeamOfItsSize team(batch, in_features, out_features);
  const std::int64_t rows = images_of_part(*state_, {batch, in_features}, {batch, out_features});
  const LinearShapes s = linear_shapes(rows, in_features, out_features, state_->products);
  const auto forward =
      dnnl_compat::inner_product_forward(state_->engine, s.src, s.weights, s.bias_f32, s.dst, s.attributes);
  const auto gradient = dnnl_compat::inner_product_backward_weights(state_->engine, s.src, s.weights_f32, s.bias_f32,
                                                                    s.dst, forward, s.attributes);
  const auto backward =
      dnnl_compat::inner_product_backward_data(state_->engine, s.src, s.weights, s.dst, forward, s.attributes);
  return std::make_unique<OnednnWeightLayout>(Shape{out_features, in_features}, gradient.diff_weights_desc(),
                                              forward.weights_desc(), backward.weights_desc());
}

void OnednnBackend::run(const ops::LinearForward& op) {
  const std::int64_t batch = op.x.shape()[0];
  const TeamOfItsSize team(batch, op.x.shape()[1], op.y.shape()[1]);
  auto& forward = plan_for(*state_, batch, op.w, op.bias != nullptr).forward;
  // Layers built for different batches may have two formats.
  if (!forward || forward->weights() != layout_of(op.w).compute) {
    const std::int64_t rows = images_of_part(*state_, op.x.shape(), op.y.shape());
    const LinearShapes s = linear_shapes(rows, op.x.shape()[1], op.y.shape()[1], state_->products);
    const auto pd =
        dnnl_compat::inner_product_forward(state_->engine, s.src, layout_of(op.w).compute,
                                           op.bias != nullptr ? s.bias_f32 : memory::desc(), s.dst, s.attributes);
    std::vector<std::pair<int, memory::desc>> arguments{
        {DNNL_ARG_SRC, s.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, s.dst}};
    if (op.bias != nullptr) arguments.emplace_back(DNNL_ARG_BIAS, s.bias_f32);
    auto bound = bind_primitive(*state_, dnnl::inner_product_forward(pd), pd.scratchpad_desc(), arguments);
    forward = in_parts(
        *state_, std::make_unique<PrimitiveDirection>(std::move(bound), pd.weights_desc(), DNNL_ARG_SRC, DNNL_ARG_DST),
        rows);
  }
  forward->run(*state_, *this, op.x, op.w.compute.raw(), op.bias != nullptr ? op.bias->master.raw() : nullptr, op.y);
  if (op.relu) run(ops::ReluForward{op.y, op.y});
}

void OnednnBackend::run(const ops::LinearBackwardInput& op) {
  const std::int64_t batch = op.dy.shape()[0];
  const TeamOfItsSize team(batch, op.dx.shape()[1], op.dy.shape()[1]);
  auto& backward = plan_for(*state_, batch, op.w, false).backward_input;
  if (!backward) {
    const std::int64_t rows = images_of_part(*state_, op.dx.shape(), op.dy.shape());
    const LinearShapes s = linear_shapes(rows, op.dx.shape()[1], op.dy.shape()[1], state_->products);
    const auto hint =
        dnnl_compat::inner_product_forward(state_->engine, s.src, s.weights, memory::desc(), s.dst, s.attributes);
    const auto pd =
        dnnl_compat::inner_product_backward_data(state_->engine, s.src, s.weights, s.dst, hint, s.attributes);
    auto bound =
        bind_primitive(*state_, dnnl::inner_product_backward_data(pd), pd.scratchpad_desc(),
                       {{DNNL_ARG_DIFF_SRC, s.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_DST, s.dst}});
    backward = in_parts(
        *state_,
        std::make_unique<PrimitiveDirection>(std::move(bound), pd.weights_desc(), DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC),
        rows);
  }
  run_backward_input(*state_, *this, *backward, op.dy, op.w, op.dx);
}

void OnednnBackend::run(const ops::LinearBackwardWeight& op) {
  const std::int64_t batch = op.x.shape()[0];
  const TeamOfItsSize team(batch, op.x.shape()[1], op.dy.shape()[1]);
  const bool bias = static_cast<bool>(op.dbias);
  auto& gradient = plan_for(*state_, batch, op.w, bias).backward_weight;
  if (!gradient) {
    const std::int64_t rows = images_of_part(*state_, op.x.shape(), op.dy.shape());
    const LinearShapes s = linear_shapes(rows, op.x.shape()[1], op.dy.shape()[1], state_->products);
    const memory::desc bias_md = bias ? s.bias_f32 : memory::desc();
    const auto hint =
        dnnl_compat::inner_product_forward(state_->engine, s.src, s.weights, bias_md, s.dst, s.attributes);
    const auto pd = dnnl_compat::inner_product_backward_weights(state_->engine, s.src, s.weights_f32, bias_md, s.dst,
                                                                hint, s.attributes);
    std::vector<std::pair<int, memory::desc>> arguments{
        {DNNL_ARG_SRC, s.src}, {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}, {DNNL_ARG_DIFF_DST, s.dst}};
    if (bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, s.bias_f32);
    auto bound = bind_primitive(*state_, dnnl::inner_product_backward_weights(pd), pd.scratchpad_desc(), arguments);
    gradient = in_parts(*state_, std::make_unique<PrimitiveGradient>(std::move(bound), pd.diff_weights_desc()), rows);
  }
  run_backward_weight(*state_, *this, *gradient, op.x, op.dy, layout_of(op.w), op.dw, op.dbias, op.accumulate);
}

}  // namespace convoy
