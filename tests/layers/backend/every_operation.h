// SPDX-License-Identifier: Apache-2.0
//
// Calls the operations of a backend on random data, for a backend that checks itself (CompareBackend): nothing is
// checked here. The same data for the same shapes everywhere. Values are chosen so that no result is the small
// difference of large numbers: more than two values per channel in batch norm, weights that keep sums near 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "tests/layers/backend/every_loss.h"
#include "tests/layers/backend/random_data.h"

namespace convoy {

inline void call_conv2d(Backend& backend, const Conv2dSpec& spec, const Shape& input, bool with_bias) {
  RandomData data(backend);
  const Shape output = spec.output_shape(input);
  const TestWeight w = data.weight(backend.conv2d_layout(spec, input));
  const TestWeight bias = data.weight(backend.vector_layout(spec.out_channels));
  const Tensor x = data.activations(input), dy = data.activations(output);
  backend.run(ops::Conv2dForward{spec, x, w.weight, with_bias ? &bias.weight : nullptr, data.output(output)});
  backend.run(ops::Conv2dBackwardInput{spec, dy, w.weight, data.output(input)});
  const Tensor sum = data.activations(input);
  backend.run(ops::Conv2dBackwardInput{spec, dy, w.weight, sum, sum});
  backend.run(ops::Conv2dBackwardInput{spec, dy, w.weight, data.output(input), sum});
  const Tensor dw = data.output_f32({w.layout->elements()});
  const Tensor dbias = with_bias ? data.output_f32({spec.out_channels}) : Tensor();
  for (const bool accumulate : {false, true}) {
    backend.run(ops::Conv2dBackwardWeight{spec, x, dy, w.weight, dw, dbias, accumulate});
  }
}

inline void call_linear(Backend& backend, std::int64_t batch, std::int64_t in, std::int64_t out, bool with_bias) {
  RandomData data(backend);
  const TestWeight w = data.weight(backend.linear_layout(in, out, batch));
  const TestWeight bias = data.weight(backend.vector_layout(out));
  const Tensor x = data.activations({batch, in}), dy = data.activations({batch, out});
  for (const bool relu : {false, true}) {
    backend.run(ops::LinearForward{x, w.weight, with_bias ? &bias.weight : nullptr, relu, data.output({batch, out})});
  }
  backend.run(ops::LinearBackwardInput{dy, w.weight, data.output({batch, in})});
  const Tensor dw = data.output_f32({w.layout->elements()});
  const Tensor dbias = with_bias ? data.output_f32({out}) : Tensor();
  for (const bool accumulate : {false, true}) {
    backend.run(ops::LinearBackwardWeight{x, dy, w.weight, dw, dbias, accumulate});
  }
}

inline void call_batch_norm(Backend& backend, const Shape& shape) {
  constexpr float kEpsilon = 1e-5F;
  RandomData data(backend);
  const Shape channels{shape[1]};
  const std::int64_t values = shape.size() / shape[1];  // per channel
  const Tensor x = data.activations(shape, -1, 2), dy = data.activations(shape), residual = data.activations(shape);
  const Tensor gamma = data.floats(channels, 0.5, 1.5), beta = data.floats(channels);
  const Tensor mean = data.output_f32(channels), variance = data.output_f32(channels);
  backend.run(ops::BatchNormStatistics{x, mean, variance});
  if (values > 1) {
    const Tensor step_mean = data.floats(channels), step_variance = data.floats(channels);
    backend.run(ops::BatchNormStatistics{x, mean, variance, step_mean, step_variance, 0.25F});
  }
  for (const bool relu : {false, true}) {
    for (const bool add : {false, true}) {
      const Tensor y = data.output(shape);
      backend.run(ops::BatchNormApply{x, mean, variance, gamma, beta, kEpsilon, add ? residual : Tensor(), relu, y});
      const Tensor mask = relu ? y : Tensor();
      const Tensor dgamma = data.output_f32(channels), dbeta = data.output_f32(channels);
      const Tensor gamma_gradient = data.output_f32(channels), beta_gradient = data.output_f32(channels);
      for (const bool accumulate : {false, true}) {
        const bool recompute = accumulate && relu && !add;  // the mask, from x
        const Tensor kept = recompute ? Tensor() : mask;
        backend.run(ops::BatchNormBackwardReduce{dy, x, kept, mean, variance, gamma, beta, kEpsilon, recompute, dgamma,
                                                 dbeta, accumulate, add ? data.output(shape) : Tensor()});
        backend.run(ops::BatchNormBackwardApply{dy, x, kept, mean, variance, gamma, beta, dgamma, dbeta,
                                                static_cast<double>(values), kEpsilon, recompute, data.output(shape),
                                                gamma_gradient, beta_gradient, accumulate});
      }
      if (add) backend.run(ops::BatchNormBackwardResidual{dy, mask, data.activations(shape)});
    }
  }
  const Tensor in_place = data.activations(shape, -1, 2), masked = data.activations(shape);
  backend.run(ops::BatchNormBackwardApply{dy, in_place, dy, mean, variance, gamma, beta, gamma, beta,
                                          static_cast<double>(values), kEpsilon, false, in_place});
  backend.run(ops::BatchNormBackwardReduce{masked, x, dy, mean, variance, gamma, beta, kEpsilon, false,
                                           data.output_f32(channels), data.output_f32(channels), false, masked});
}

/// A batch norm whose output only max pooling reads, forward and backward. Its values are numbers that every type
/// holds, so that the same ones are the largest.
inline void call_pooled(Backend& backend, const Shape& shape) {
  RandomData data(backend);
  const Shape channels{shape[1]};
  const auto filled = [&](const std::vector<float>& pattern) {
    std::vector<float> host(static_cast<std::size_t>(shape[1]));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = pattern[i % pattern.size()];
    Tensor x = data.output_f32(channels);
    backend.copy_from_host(host.data(), x);
    return x;
  };
  const Tensor x = data.coarse_activations(shape), mean = filled({0, 1, -1}), variance = filled({1, 4, 0.25});
  const Tensor gamma = filled({1, -0.5, 2}), beta = filled({0.5, 0, -1, 2});
  for (const PoolSpec& spec : {PoolSpec{3, 2, 1}, PoolSpec{2, 2, 0}}) {
    const Shape pooled = spec.output_shape(shape);
    const Tensor y = data.output(pooled), argmax = backend.tensor(pooled, DType::kU8);
    const ops::MaxPoolForward epilogue{spec, ops::none(), y, argmax};
    backend.run(ops::BatchNormApply{x, mean, variance, gamma, beta, 0, ops::none(), true, ops::none(), nullptr, nullptr,
                                    &epilogue});
    const Tensor dy = data.activations(pooled);
    const ops::MaxPoolBackward prologue{spec, dy, argmax, ops::none()};
    const Tensor dgamma = data.output_f32(channels), dbeta = data.output_f32(channels);
    backend.run(ops::BatchNormBackwardReduce{ops::none(), x, ops::none(), mean, variance, gamma, beta, 0, true, dgamma,
                                             dbeta, false, ops::none(), ops::none(), &prologue});
    backend.run(ops::BatchNormBackwardApply{ops::none(), x, ops::none(), mean, variance, gamma, beta, dgamma, dbeta,
                                            static_cast<double>(x.size() / shape[1]), 0, true, data.output(shape),
                                            ops::none(), ops::none(), false, &prologue});
  }
}

/// Convolutions and batch norms with all the parts that a backend may fuse; one that does not runs them apart.
inline void call_fused(Backend& backend, const Conv2dSpec& spec, const Shape& input) {
  constexpr float kEpsilon = 1e-5F;
  RandomData data(backend);
  const Shape output = spec.output_shape(input);
  struct Norm {
    Tensor mean, variance, gamma, beta, coefficients, rounded;
    Norm(Backend& backend, RandomData& data, const Tensor& x)
        : mean(data.output_f32({x.shape()[1]})),
          variance(data.output_f32({x.shape()[1]})),
          gamma(data.floats({x.shape()[1]}, 0.5, 1.5)),
          beta(data.floats({x.shape()[1]})),
          coefficients(data.output_f32({4, x.shape()[1]})),
          rounded(data.output({2, x.shape()[1]})) {
      backend.run(statistics(x, ops::none()));
    }
    [[nodiscard]] ops::BatchNormStatistics statistics(const Tensor& x, const Tensor& pivot) const {
      return {x, mean, variance, ops::none(), ops::none(), 0, pivot, gamma, beta, kEpsilon, coefficients, rounded};
    }
    [[nodiscard]] ops::BatchNormApply apply(const Tensor& x, const Tensor& y, bool relu = true) const {
      return {x,    mean, variance, gamma,   beta,    kEpsilon,     ops::none(),
              relu, y,    nullptr,  nullptr, nullptr, coefficients, rounded};
    }
    [[nodiscard]] ops::BatchNormBackwardReduce reduce(const Tensor& dx, const Tensor& x, const Tensor& mask, bool relu,
                                                      const Tensor& dgamma, const Tensor& dbeta) const {
      return {dx, x, mask, mean, variance, gamma, beta, kEpsilon, relu, dgamma, dbeta, true, dx, coefficients};
    }
  };
  const TestWeight w = data.weight(backend.conv2d_layout(spec, input));
  const Tensor x = data.activations(input, -1, 2), residual = data.activations(input), dy = data.activations(output);
  const Norm before(backend, data, x), behind(backend, data, dy);
  for (const bool stored : {true, false}) {
    const Tensor values = stored ? data.output(input) : Tensor();
    const ops::BatchNormApply prologue = before.apply(x, values);
    for (const Tensor& pivot : {Tensor(), data.floats({output[1]})}) {
      const Tensor y = data.output(output);
      const ops::BatchNormStatistics epilogue = behind.statistics(y, pivot);
      backend.run(ops::Conv2dForward{spec, values, w.weight, nullptr, y, &prologue, &epilogue});
      backend.run(ops::Conv2dForward{spec, x, w.weight, nullptr, y, nullptr, &epilogue});
    }
    const Tensor dw = data.output_f32({w.layout->elements()});
    for (const bool accumulate : {false, true}) {
      backend.run(ops::Conv2dBackwardWeight{spec, values, dy, w.weight, dw, ops::none(), accumulate, &prologue});
    }
  }
  const Tensor relu_output = data.output(input);
  backend.run(before.apply(x, relu_output));
  for (const bool add : {false, true}) {
    for (const Tensor& mask : {Tensor(), relu_output}) {
      for (const bool relu : {false, true}) {
        const Tensor dx = data.output(input);
        const Tensor dgamma = data.floats({input[1]}), dbeta = data.floats({input[1]});
        const ops::BatchNormBackwardReduce epilogue = before.reduce(dx, x, mask, relu && !mask, dgamma, dbeta);
        backend.run(ops::Conv2dBackwardInput{spec, dy, w.weight, dx, add ? residual : Tensor(), &epilogue});
      }
    }
  }
  const Norm shortcut(backend, data, residual);
  const ops::BatchNormApply sum = shortcut.apply(residual, ops::none(), false);
  const Tensor y = data.output(input);
  backend.run(ops::BatchNormApply{x, before.mean, before.variance, before.gamma, before.beta, kEpsilon, ops::none(),
                                  true, y, nullptr, &sum});
  call_pooled(backend, input);
}

inline void call_max_pool(Backend& backend, const PoolSpec& spec, const Shape& input) {
  RandomData data(backend);
  const Shape output = spec.output_shape(input);
  for (const Tensor& x : {data.activations(input), data.coarse_activations(input)}) {
    const Tensor argmax = backend.tensor(output, DType::kU8);
    backend.run(ops::MaxPoolForward{spec, x, data.output(output), argmax});
    backend.run(ops::MaxPoolBackward{spec, data.activations(output), argmax, data.output(input)});
  }
}

/// What works on whole images.
inline void call_image_operations(Backend& backend, const Shape& shape) {
  RandomData data(backend);
  for (const std::int64_t values : {shape[1], std::int64_t{1}}) {
    backend.run(ops::NormalizeImages{data.images(shape), data.floats({values}, 0.3, 0.6),
                                     data.floats({values}, 0.2, 0.3), data.output(shape)});
  }
  for (const std::int64_t few : {1, 3}) {
    const Shape image{shape[0], few, shape[2], shape[3]};
    for (const std::int64_t wide : {4, 5}) {
      backend.run(ops::NormalizeImages{data.images(image), data.floats({few}, 0.3, 0.6), data.floats({few}, 0.2, 0.3),
                                       data.output({shape[0], wide, shape[2], shape[3]})});
    }
  }
  for (const std::int64_t channels : {shape[1], std::int64_t{4}}) {
    const std::int64_t given = std::min<std::int64_t>(shape[1], channels == 4 ? 3 : shape[1]);
    const Tensor images = data.images({shape[0] + 1, given, shape[2], shape[3]}),
                 y = data.output({shape[0], channels, shape[2], shape[3]});
    const Tensor mean = data.floats({given}, 0.3, 0.6), std = data.floats({given}, 0.2, 0.3);
    const Tensor erased = data.boxes(shape[0] + 1, shape[2], shape[3]);
    const Tensor weights = data.floats({2}, 0, 1);
    const std::int64_t left = shape[3] / 2, top = shape[2] / 2;
    backend.run(ops::NormalizeImages{images.view(0, {shape[0], given, shape[2], shape[3]}), mean, std, y,
                                     erased.view(0, {shape[0], 4})});
    for (const Tensor& box :
         {data.box(0, 0, shape[3], shape[2]), data.box(left, top, shape[3] - left, shape[2] - top)}) {
      backend.run(ops::NormalizeImages{images, mean, std, y, erased, weights, box});
      backend.run(ops::NormalizeImages{images, mean, std, y, ops::none(), weights, box});
    }
  }
  const Shape flat{shape[0], shape.sample_size()}, pooled{shape[0], shape[1]};
  backend.run(ops::Flatten{data.activations(shape), data.output(flat)});
  backend.run(ops::Unflatten{data.activations(flat), data.output(shape)});
  backend.run(ops::GlobalAvgPoolForward{data.activations(shape, 0, 1), data.output(pooled)});
  backend.run(ops::GlobalAvgPoolBackward{data.activations(pooled), data.output(shape)});
}

inline void call_elementwise(Backend& backend, std::int64_t count) {
  RandomData data(backend);
  const Shape shape{count};
  const Tensor x = data.activations(shape), y = data.output(shape), dx = data.activations(shape);
  backend.run(ops::ReluForward{x, y});
  backend.run(ops::ReluBackward{data.activations(shape), y, data.output(shape)});
  backend.run(ops::ReluBackward{dx, y, dx});
  backend.run(ops::ReluBackward{dx, y, y});
  backend.run(ops::Add{x, y});
  const Tensor a = data.floats(shape), b = data.floats(shape);
  backend.run(ops::Cast{a, data.output(shape)});
  backend.run(ops::Cast{x, data.output_f32(shape)});
  backend.run(ops::Scale{0.37F, a, a});
  backend.run(ops::Scale{0.37F, x, data.output(shape)});
  backend.run(ops::Axpy{0.3F, a, b});
  backend.run(ops::Axpy{-0.1F, b, b});
  backend.zero(x);
  backend.zero(a);
  backend.zero(backend.tensor(shape, DType::kF64));
  backend.zero(backend.tensor(shape, DType::kU8));
  backend.all_finite(b);
  if (count == 0) return;
  for (const float wrong : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      const Tensor c = data.floats(shape);
      backend.copy_from_host(&wrong, c.view(at, {1}));
      backend.all_finite(c);
    }
  }
}

inline void call_updates(Backend& backend, std::int64_t count) {
  RandomData data(backend);
  const Shape shape{count};
  for (const bool nesterov : {false, true}) {
    for (const float decay : {0.0F, 0.01F}) {
      const ops::SgdUpdate::Hyperparameters sgd{0.1F, 0.9F, decay, nesterov};
      backend.run(ops::SgdUpdate{sgd, data.floats(shape), data.floats(shape), data.floats(shape)});
    }
  }
  backend.run(ops::SgdUpdate{{0.1F, 0.0F, 0.01F, false}, data.floats(shape), data.floats(shape), Tensor()});
  for (const float decay : {0.0F, 0.05F}) {
    const ops::AdamwUpdate::Hyperparameters adamw{
        0.01F, 1e-8F, decay, 0.9, 0.999, 1 - std::pow(0.9, 3), 1 - std::pow(0.999, 3)};
    backend.run(
        ops::AdamwUpdate{adamw, data.floats(shape), data.floats(shape), data.floats(shape), data.floats(shape, 0, 1)});
  }
  const std::int64_t first = count / 2, second = (count - first) / 3;
  std::vector<Segment> segments{
      {0, first, true}, {first, second, false}, {first + second, count - first - second, true}};
  std::erase_if(segments, [](const Segment& segment) { return segment.elements == 0; });
  for (const float decay : {0.0F, 1e-3F}) {
    const ops::LarsUpdate::Hyperparameters lars{0.5F, 0.9F, decay, 0.02F, 1e-9F};
    backend.run(ops::LarsUpdate{lars, segments, data.floats(shape), data.floats(shape), data.floats(shape)});
  }
}

/// On float32 tensors that begin at any element, as views of flat buffers do.
inline void call_on_views(Backend& backend, std::int64_t channels) {
  RandomData data(backend);
  const Shape image{4, channels, 3, 5};
  for (const std::int64_t first : {1, 2, 3}) {
    const auto view = [&](double low, double high) {
      return data.floats({channels + first}, low, high).view(first, {channels});
    };
    const Tensor a = view(-1, 1), b = view(-1, 1), gamma = view(0.5, 1.5), mean = view(0, 1), variance = view(0, 1);
    backend.run(ops::Axpy{0.3F, a, b});
    backend.run(ops::Axpy{0.3F, a, data.floats({channels})});
    backend.run(ops::Scale{0.5F, b, b});
    backend.all_finite(b);
    backend.run(ops::Cast{a, data.output({channels})});
    const Tensor x = data.activations(image), dy = data.activations(image), y = data.output(image);
    backend.run(ops::BatchNormStatistics{x, mean, variance});
    backend.run(ops::BatchNormApply{x, mean, variance, gamma, a, 1e-5F, Tensor(), true, y});
    backend.run(ops::BatchNormBackwardReduce{dy, x, y, mean, variance, gamma, a, 1e-5F, false, mean, b});
    backend.run(
        ops::BatchNormBackwardApply{dy, x, y, mean, variance, gamma, a, a, b, 60, 1e-5F, false, data.output(image)});
    backend.run(ops::SgdUpdate{{0.1F, 0.9F, 0.01F, true}, a, b, gamma});
    backend.run(ops::AdamwUpdate{{0.01F, 1e-8F, 0.05F, 0.9, 0.999, 0.3, 0.003}, a, b, gamma, variance});
    backend.run(
        ops::LarsUpdate{{0.5F, 0.9F, 1e-3F, 0.02F, 1e-9F}, std::vector<Segment>{{0, channels, true}}, a, b, gamma});
    backend.run(ops::LambUpdate{{0.01F, 1e-6F, 0.05F, 0.9, 0.999, 0.3, 0.003},
                                std::vector<Segment>{{0, channels, true}},
                                a,
                                b,
                                gamma,
                                variance});
    backend.zero(a);
  }
}

/// Calls of operations whose test file registers them: backend, batch size, channels.
using Calls = std::function<void(Backend&, std::int64_t batch, std::int64_t channels)>;
inline std::vector<Calls>& registered_calls() {
  static std::vector<Calls> calls;
  return calls;
}
/// A variable of this type in a file of tests/layers/backend/operations adds to call_every_operation().
struct RegisterCalls {
  explicit RegisterCalls(Calls calls) { registered_calls().push_back(std::move(calls)); }
};

/// How each part of call_every_operation() is run: at once, unless a test wants to go on after a failure.
using RunPart = std::function<void(const std::function<void()>&)>;

/// Every operation at one batch size and number of channels: small images, all kernels and strides.
inline void call_every_operation(
    Backend& backend, std::int64_t batch, std::int64_t channels,
    const RunPart& run = [](const std::function<void()>& part) { part(); }) {
  const Shape image{batch, channels, 11, 9};
  struct Window {
    std::int64_t kernel, stride, padding;
  };
  for (const Window w : {Window{1, 1, 0}, Window{1, 2, 0}, Window{2, 2, 0}, Window{3, 1, 1}, Window{3, 2, 1},
                         Window{5, 1, 2}, Window{7, 2, 3}}) {
    run([&] { call_conv2d(backend, {channels, 5, w.kernel, w.stride, w.padding}, image, true); });
    run([&] { call_conv2d(backend, {channels, 64, w.kernel, w.stride, w.padding}, image, false); });
  }
  run([&] { call_conv2d(backend, {channels, 2 * channels, {3, 1}, {1, 2}, {1, 0}, channels}, image, true); });
  run([&] { call_linear(backend, batch, channels, 10, true); });
  run([&] { call_linear(backend, batch, 130, channels, false); });
  run([&] { call_batch_norm(backend, image); });
  run([&] { call_batch_norm(backend, {batch + 7, channels}); });
  for (const PoolSpec& spec : {PoolSpec{3, 2, 1}, PoolSpec{2, 2, 0}, PoolSpec{3, 1, 1}, PoolSpec{5, 3, 2}}) {
    run([&] { call_max_pool(backend, spec, image); });
  }
  run([&] { call_image_operations(backend, image); });
  run([&] { call_image_operations(backend, {batch, channels, 1, 1}); });
  run([&] { call_elementwise(backend, image.size()); });
  run([&] { call_losses(backend, batch, channels); });
  run([&] { call_updates(backend, 1000 * batch + channels); });
  run([&] { call_on_views(backend, channels); });
  for (const Calls& calls : registered_calls()) {
    run([&] { calls(backend, batch, channels); });
  }
}

}  // namespace convoy
