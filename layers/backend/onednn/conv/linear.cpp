// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of the CPU backend: oneDNN's inner product with the bias in its epilogue, or own products of rows, in
// bfloat16 those of a 1x1 convolution. ReLU is a pass of our own: oneDNN's post-op turns NaN into 0. The weight formats
// are chosen once, as in conv2d.cpp, by rules of shape alone.
#include <omp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "layers/backend/onednn/conv/pixel_gradient.h"
#include "layers/backend/onednn/conv/pointwise_conv2d.h"
#include "layers/backend/onednn/conv/row_product.h"
#include "layers/backend/onednn/conv/row_product_bf16.h"
#include "layers/backend/onednn/conv/threaded_rows.h"
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

Conv2dSpec spec_of(const Weight& w) { return pointwise_spec(w.layout->shape()[1], w.layout->shape()[0]); }

// While it lives, oneDNN makes and runs primitives for this many threads.
class TeamOf {
 public:
  explicit TeamOf(int threads) { omp_set_num_threads(threads); }
  ~TeamOf() { omp_set_num_threads(threads_); }
  TeamOf(const TeamOf&) = delete;
  TeamOf& operator=(const TeamOf&) = delete;

 private:
  int threads_ = omp_get_max_threads();
};

// One thread if the product of these sizes is small: to start a team and to wait for it takes microseconds, in which a
// core does this many multiplications.
int team_size(std::int64_t batch, std::int64_t in, std::int64_t out) {
  constexpr std::int64_t kSmall = std::int64_t{1} << 17;
  return batch * in * out < kSmall ? 1 : omp_get_max_threads();
}

struct Product {
  BoundPrimitive bound;
  memory::desc weights;
};

Product forward_product(OnednnState& state, std::int64_t rows, const Shape& weight, const memory::desc& format,
                        bool bias) {
  const LinearShapes s = linear_shapes(rows, weight[1], weight[0], state.products);
  const auto pd = dnnl_compat::inner_product_forward(state.engine, s.src, format, bias ? s.bias_f32 : memory::desc(),
                                                     s.dst, s.attributes);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, s.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DST, s.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_BIAS, s.bias_f32);
  return {bind_primitive(state, dnnl::inner_product_forward(pd), pd.scratchpad_desc(), arguments), pd.weights_desc()};
}

Product backward_product(OnednnState& state, std::int64_t rows, const Shape& weight) {
  const LinearShapes s = linear_shapes(rows, weight[1], weight[0], state.products);
  const auto hint =
      dnnl_compat::inner_product_forward(state.engine, s.src, s.weights, memory::desc(), s.dst, s.attributes);
  const auto pd = dnnl_compat::inner_product_backward_data(state.engine, s.src, s.weights, s.dst, hint, s.attributes);
  return {
      bind_primitive(state, dnnl::inner_product_backward_data(pd), pd.scratchpad_desc(),
                     {{DNNL_ARG_DIFF_SRC, s.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_DST, s.dst}}),
      pd.weights_desc()};
}

// A direction of these rows by the products that `make` gives for a number of them: one of all threads, or one of each.
// from, to: which arguments of the products x and y are.
std::unique_ptr<Direction> make_direction(OnednnState& state, std::int64_t rows, bool divides,
                                          const std::function<Product(std::int64_t)>& make, int from, int to) {
  const int threads = divides ? row_threads(rows) : 1;
  if (threads == 1) {
    Product whole = make(rows);
    return std::make_unique<PrimitiveDirection>(std::move(whole.bound), whole.weights, from, to);
  }
  const TeamOf one(1);
  std::vector<BoundPrimitive> parts;
  memory::desc weights;
  for (int thread = 0; thread < threads; ++thread) {
    Product part = make(first_row(rows, thread + 1, threads) - first_row(rows, thread, threads));
    weights = part.weights;
    parts.push_back(std::move(part.bound));
  }
  return std::make_unique<ThreadedRows>(state, std::move(parts), weights, from, to);
}

std::unique_ptr<WeightGradient> library_gradient(OnednnState& state, std::int64_t rows, std::int64_t in,
                                                 std::int64_t out, bool bias) {
  const LinearShapes s = linear_shapes(rows, in, out, state.products);
  const memory::desc bias_md = bias ? s.bias_f32 : memory::desc();
  const auto hint = dnnl_compat::inner_product_forward(state.engine, s.src, s.weights, bias_md, s.dst, s.attributes);
  const auto pd = dnnl_compat::inner_product_backward_weights(state.engine, s.src, s.weights_f32, bias_md, s.dst, hint,
                                                              s.attributes);
  std::vector<std::pair<int, memory::desc>> arguments{
      {DNNL_ARG_SRC, s.src}, {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}, {DNNL_ARG_DIFF_DST, s.dst}};
  if (bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, s.bias_f32);
  auto bound = bind_primitive(state, dnnl::inner_product_backward_weights(pd), pd.scratchpad_desc(), arguments);
  return std::make_unique<PrimitiveGradient>(std::move(bound), pd.diff_weights_desc());
}

std::unique_ptr<WeightGradient> make_gradient(OnednnState& state, std::int64_t rows, std::int64_t in, std::int64_t out,
                                              bool bias) {
  const Tag format = row_product_format(rows, in, out, state.products);
  if (!bias && format != Tag::any && state.rules.row_gradient_f32 && has_pixel_gradient(pointwise_spec(in, out))) {
    return make_row_gradient(rows, in, out, format == Tag::ba);
  }
  return library_gradient(state, rows, in, out, bias);
}

// Whether the rows of a product may be divided between threads: where its weight has the same format whatever their
// number.
bool divides_rows(std::int64_t rows, const Shape& weight, DType compute) {
  return row_product_format(rows, weight[1], weight[0], compute) != Tag::any;
}

// Whether these rows go through own products, whose weight has such a format, too. format: that of the weight.
bool own_rows(const OnednnState& state, std::int64_t rows, const Shape& weight, const memory::desc& format) {
  return by_own_rows(state, weight[1], weight[0]) && divides_rows(rows, weight, state.products) &&
         dnnl_compat::blocking_of(format).blocks.empty();
}

}  // namespace

std::unique_ptr<WeightLayout> OnednnBackend::linear_layout(std::int64_t in_features, std::int64_t out_features,
                                                           std::int64_t batch) {
  const TeamOf team(team_size(batch, in_features, out_features));
  if (const Conv2dSpec spec = pointwise_spec(in_features, out_features); by_own_rows_bf16(*state_, spec)) {
    const auto layout = conv2d_layout(spec, {batch, in_features, 1, 1});
    const auto& md = static_cast<const OnednnWeightLayout&>(*layout);
    return std::make_unique<OnednnWeightLayout>(Shape{out_features, in_features}, md.native, md.compute, md.backward);
  }
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
  const Shape weight = op.w.layout->shape();
  const TeamOf team(team_size(batch, weight[1], weight[0]));
  if (!layout_of(op.w).of_rows()) {
    run(ops::Conv2dForward{spec_of(op.w), as_pixels(op.x), op.w, op.bias, as_pixels(op.y)});
    if (op.relu) run(ops::ReluForward{op.y, op.y});
    return;
  }
  auto& forward = plan_for(*state_, batch, op.w, op.bias != nullptr).forward;
  // Layers built for different batches may have two formats.
  if (!forward || forward->weights() != layout_of(op.w).compute) {
    const std::int64_t rows = images_of_part(*state_, op.x.shape(), op.y.shape());
    const auto make = [&](std::int64_t some) {
      return forward_product(*state_, some, weight, layout_of(op.w).compute, op.bias != nullptr);
    };
    const memory::desc& format = layout_of(op.w).compute;
    forward = own_rows(*state_, rows, weight, format)
                  ? make_own_row_product(format, false)
                  : make_direction(*state_, rows, divides_rows(rows, weight, state_->products), make, DNNL_ARG_SRC,
                                   DNNL_ARG_DST);
    forward = in_parts(*state_, std::move(forward), rows);
  }
  forward->run(*state_, *this, op.x, op.w.compute.raw(), op.bias != nullptr ? op.bias->master.raw() : nullptr, op.y);
  if (op.relu) run(ops::ReluForward{op.y, op.y});
}

void OnednnBackend::run(const ops::LinearBackwardInput& op) {
  const std::int64_t batch = op.dy.shape()[0];
  const Shape weight = op.w.layout->shape();
  const TeamOf team(team_size(batch, weight[1], weight[0]));
  if (!layout_of(op.w).of_rows()) {
    return run(ops::Conv2dBackwardInput{spec_of(op.w), as_pixels(op.dy), op.w, as_pixels(op.dx)});
  }
  auto& backward = plan_for(*state_, batch, op.w, false).backward_input;
  if (!backward) {
    const std::int64_t rows = images_of_part(*state_, op.dx.shape(), op.dy.shape());
    const auto make = [&](std::int64_t some) { return backward_product(*state_, some, weight); };
    const memory::desc format = linear_shapes(rows, weight[1], weight[0], state_->products).weights;
    backward = own_rows(*state_, rows, weight, format)
                   ? make_own_row_product(format, true)
                   : make_direction(*state_, rows, divides_rows(rows, weight, state_->products), make,
                                    DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC);
    backward = in_parts(*state_, std::move(backward), rows);
  }
  run_backward_input(*state_, *this, *backward, op.dy, op.w, op.dx);
}

void OnednnBackend::run(const ops::LinearBackwardWeight& op) {
  const std::int64_t batch = op.x.shape()[0];
  const TeamOf team(team_size(batch, op.x.shape()[1], op.dy.shape()[1]));
  if (!layout_of(op.w).of_rows()) {
    return run(ops::Conv2dBackwardWeight{spec_of(op.w), as_pixels(op.x), as_pixels(op.dy), op.w, op.dw, op.dbias,
                                         op.accumulate});
  }
  const bool bias = static_cast<bool>(op.dbias);
  auto& gradient = plan_for(*state_, batch, op.w, bias).backward_weight;
  if (!gradient) {
    const std::int64_t rows = images_of_part(*state_, op.x.shape(), op.dy.shape());
    gradient = in_parts(*state_, make_gradient(*state_, rows, op.x.shape()[1], op.dy.shape()[1], bias), rows);
  }
  run_backward_weight(*state_, *this, *gradient, op.x, op.dy, layout_of(op.w), op.dw, op.dbias, op.accumulate);
}

}  // namespace convoy
