// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA backend would move, counted, against closed forms: single operations exactly, a residual block in
// passes over its activations.
#include "layers/backend/observe/traffic_backend.h"

#include <doctest/doctest.h>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "layers/base/profile_range.h"
#include "layers/conv2d.h"
#include "layers/model.h"
#include "layers/residual.h"
#include "tests/layers/backend/every_operation.h"

using namespace convoy;

namespace {

constexpr FusionRules kFused{DType::kBF16, false}, kFusedHalf{DType::kF16, false}, kApart{DType::kBF16, true};

Moved moved(const TrafficBackend& backend, TrafficKind kind, const std::string& phase = "") {
  Moved sum;
  for (const auto& [key, part] : backend.traffic()) {
    if (key.kind == kind && (phase.empty() || key.phase == phase)) sum += part;
  }
  return sum;
}

// A convolution of 16 bits, 8 to 16 channels, and the batch norm of its input or of its output.
struct ConvNorm {
  static constexpr double kX = 2 * 8 * 36 * 2, kY = 2 * 16 * 36 * 2, kW = 16 * 8 * 9 * 2;  // bytes
  static constexpr double kInputVectors = 4 * 8 * 4;  // mean, variance, gamma, beta

  TrafficBackend backend;
  RandomData data{backend};
  Conv2dSpec spec{8, 16, 3, 1, 1};
  Shape input{2, 8, 6, 6}, output{2, 16, 6, 6};
  TestWeight w = data.weight(backend.conv2d_layout(spec, input));
  Tensor x = data.output(input), y = data.output(output), other = data.output(input), dx = data.output(input);
  Tensor dw = data.output_f32({w.layout->elements()});

  explicit ConvNorm(const FusionRules& rules) : backend(rules) { backend.restart(); }
  [[nodiscard]] Tensor vector(std::int64_t channels) { return data.output_f32({channels}); }
  [[nodiscard]] Tensor coefficients(std::int64_t channels) { return data.output_f32({4, channels}); }
  [[nodiscard]] Tensor rounded(std::int64_t channels) { return data.output({2, channels}); }

  void forward() {
    const Tensor m = vector(16), v = vector(16), g = vector(16), b = vector(16), c = coefficients(16), r = rounded(16);
    const ops::BatchNormStatistics statistics{y, m, v, ops::none(), ops::none(), 0, ops::none(), g, b, 1e-5F, c, r};
    backend.run(ops::Conv2dForward{spec, x, w.weight, nullptr, y, nullptr, &statistics});
  }
  void backward_input() {
    const Tensor m = vector(8), v = vector(8), g = vector(8), b = vector(8), c = coefficients(8);
    const Tensor dgamma = vector(8), dbeta = vector(8);
    const ops::BatchNormBackwardReduce reductions{dx,    x,    ops::none(), m,     v,    g,  b,
                                                  1e-5F, true, dgamma,      dbeta, true, dx, c};
    backend.run(ops::Conv2dBackwardInput{spec, y, w.weight, dx, other, &reductions});
  }
  void backward_weight() {
    const Tensor m = vector(8), v = vector(8), g = vector(8), b = vector(8), c = coefficients(8), r = rounded(8);
    const ops::BatchNormApply apply{x,    m,           v,       g,       b,       1e-5F, ops::none(),
                                    true, ops::none(), nullptr, nullptr, nullptr, c,     r};
    backend.run(ops::Conv2dBackwardWeight{spec, ops::none(), y, w.weight, dw, ops::none(), false, &apply});
    backend.finish_gradients();
  }
};

}  // namespace

TEST_CASE("statistics of a convolution's output are read from it, unless it computes them") {
  const double outputs = 4 * 16 * 4 + 4 * 16 * 4 + 2 * 16 * 2;  // four vectors, coefficients, rounded ones
  ConvNorm fused(kFused), apart(kApart);
  for (ConvNorm* net : {&fused, &apart}) {
    net->forward();
    const Moved products = moved(net->backend, TrafficKind::kProducts);
    CHECK(products.bytes == ConvNorm::kX + ConvNorm::kW + ConvNorm::kY);
    CHECK(products.least == products.bytes);
    CHECK(products.nodes == 1);
  }
  const Moved ours = moved(fused.backend, TrafficKind::kStatistics),
              theirs = moved(apart.backend, TrafficKind::kStatistics);
  CHECK(ours.bytes == outputs + 2 * 2 * 16 * 4);  // and the two sums, added to and read
  CHECK(ours.nodes == 1);
  CHECK(theirs.bytes == outputs + ConvNorm::kY);
  CHECK(theirs.nodes == 2);
  CHECK(moved(fused.backend, TrafficKind::kRest).nodes == 1);  // the sums were cleared
}

TEST_CASE("a gradient is added, masked and reduced where it is computed, or in passes of their own") {
  const double vectors = ConvNorm::kInputVectors + 2 * 2 * 8 * 4 + 4 * 8 * 4;
  ConvNorm fused(kFused), apart(kApart);
  for (ConvNorm* net : {&fused, &apart}) {
    net->backward_input();
    CHECK(moved(net->backend, TrafficKind::kProducts).bytes == ConvNorm::kX + ConvNorm::kW + ConvNorm::kY);
  }
  CHECK(moved(fused.backend, TrafficKind::kJoins).bytes == ConvNorm::kX);
  CHECK(moved(fused.backend, TrafficKind::kBackwardReduce).bytes == ConvNorm::kX + vectors);
  CHECK(moved(fused.backend, TrafficKind::kBackwardReduce).nodes == 0);
  CHECK(moved(apart.backend, TrafficKind::kJoins).bytes == 3 * ConvNorm::kX);
  CHECK(moved(apart.backend, TrafficKind::kBackwardReduce).bytes == 3 * ConvNorm::kX + vectors);
  CHECK(moved(apart.backend, TrafficKind::kBackwardReduce).nodes == 2);
}

TEST_CASE("weight gradients leave in 16 bits, of inputs that are normalised on their way in or before") {
  ConvNorm half(kFusedHalf), brain(kFused);
  for (ConvNorm* net : {&half, &brain}) {
    net->backward_weight();
    const Moved products = moved(net->backend, TrafficKind::kProducts),
                casts = moved(net->backend, TrafficKind::kGradientCasts);
    CHECK(products.bytes == ConvNorm::kX + ConvNorm::kW + ConvNorm::kY);
    CHECK(casts.bytes == 3 * ConvNorm::kW);
    CHECK(casts.nodes == 1);
  }
  CHECK(moved(half.backend, TrafficKind::kApply).bytes == 2 * 8 * 2);
  CHECK(moved(brain.backend, TrafficKind::kApply).bytes ==
        2 * ConvNorm::kX + ConvNorm::kInputVectors + 4 * 8 * 4 + 2 * 8 * 2);
}

TEST_CASE("few channels are padded first, unless they come with the padding") {
  TrafficBackend backend(kFused);
  RandomData data(backend);
  const Conv2dSpec spec{3, 16, 3, 1, 1};
  const TestWeight w = data.weight(backend.conv2d_layout(spec, {2, 3, 6, 6}));
  const Tensor x = data.output({2, 3, 6, 6}), y = data.output({2, 16, 6, 6});
  backend.restart();
  backend.run(ops::Conv2dForward{spec, x, w.weight, nullptr, y});
  const Moved products = moved(backend, TrafficKind::kProducts);
  const double pixels = 2 * 36 * 2, window = 16 * 9 * 2;
  CHECK(products.bytes == (3 + 2 * 4) * pixels + 4 * window + 16 * pixels);
  CHECK(products.least == 3 * pixels + 3 * window + 16 * pixels);
  CHECK(products.nodes == 2);

  backend.restart();
  CHECK(backend.input_channels(spec) == 4);
  backend.run(ops::Conv2dForward{spec, data.output({2, 4, 6, 6}), w.weight, nullptr, y});
  const Moved whole = moved(backend, TrafficKind::kProducts);
  CHECK(whole.bytes == 4 * pixels + 4 * window + 16 * pixels);
  CHECK(whole.least == products.least);
  CHECK(whole.nodes == 1);
}

TEST_CASE("a residual block in passes over its activations") {
  struct Expected {
    FusionRules rules;
    double statistics, apply, reduce, backward_apply, joins;
  };
  // Of the two batch norms: see the operations. The block's last one has its reductions apart: no convolution of this
  // network computes the gradient of its output.
  for (const Expected& expected :
       {Expected{kFused, 0, 2 + 3, 4 + 1, 3 + 3, 1}, Expected{kFusedHalf, 0, 3, 4 + 1, 3 + 3, 1},
        Expected{kApart, 2, 2 + 3, 3 + 2, 4 + 3, 4}}) {
    TrafficBackend backend(expected.rules);
    const Shape shape{4, 8, 64, 64};
    std::vector<Unit> units;
    units.push_back({"conv", "conv", std::make_unique<Conv2d>(Conv2dSpec{0, 8}, false)});
    units.push_back({"block", "block", std::make_unique<ResidualBlock>(ResidualBlock::Kind::kBasic, 8, 1)});
    Model model(backend, std::move(units), shape, 1);
    Cache cache = model.make_cache();
    const Tensor x = backend.tensor(shape, backend.compute_type()), dy = backend.tensor(shape, backend.compute_type());
    model.parameters().begin_step();
    backend.restart();
    {
      const ProfileRange phase("forward");
      static_cast<void>(model.forward(x, cache, Mode::kTraining));
    }
    {
      const ProfileRange phase("backward");
      static_cast<void>(model.backward(dy, cache, [](std::int64_t) {}));
    }
    const auto passes = [&](TrafficKind kind, const std::string& phase) {
      double bytes = 0;
      for (const auto& [key, part] : backend.traffic()) {
        if (key.unit == "block" && key.phase == phase && key.kind == kind) bytes += part.bytes;
      }
      const double whole = std::round(bytes / static_cast<double>(x.bytes()));
      CHECK(std::abs(bytes - whole * static_cast<double>(x.bytes())) < 8192);  // weights and vectors
      return whole;
    };
    CHECK(passes(TrafficKind::kProducts, "forward") == 2 + 2);
    CHECK(passes(TrafficKind::kStatistics, "forward") == expected.statistics);
    CHECK(passes(TrafficKind::kApply, "forward") == expected.apply);
    CHECK(passes(TrafficKind::kProducts, "backward") == 4 * 2);
    CHECK(passes(TrafficKind::kBackwardReduce, "backward") == expected.reduce);
    CHECK(passes(TrafficKind::kBackwardApply, "backward") == expected.backward_apply);
    CHECK(passes(TrafficKind::kJoins, "backward") == expected.joins);
    CHECK(moved(backend, TrafficKind::kGradientCasts).nodes == 1);
  }
}

TEST_CASE("every operation is counted, in every type") {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool deterministic : {false, true}) {
      TrafficBackend backend({type, deterministic});
      call_every_operation(backend, 2, 5);
      for (const TrafficKind kind :
           {TrafficKind::kProducts, TrafficKind::kStatistics, TrafficKind::kApply, TrafficKind::kBackwardReduce,
            TrafficKind::kBackwardApply, TrafficKind::kJoins, TrafficKind::kRest, TrafficKind::kGradientCasts}) {
        CHECK(moved(backend, kind).bytes > 0);
        CHECK(moved(backend, kind).nodes + (kind == TrafficKind::kJoins ? 1 : 0) > 0);
      }
    }
  }
}
