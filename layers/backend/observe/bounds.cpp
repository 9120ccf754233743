// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/observe/bounds.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "layers/base/median.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr std::int64_t kMatrix = 2048;                   // rows and columns: 17 GFLOP, 16 MiB in float32
constexpr std::int64_t kVector = std::int64_t{1} << 26;  // elements: 256 MiB, beyond any cache
constexpr int kRounds = 7;
constexpr double kMinSeconds = 0.05;  // a short operation is timed again until its rounds have taken so long
constexpr int kMaxRounds = 200;

double seconds_of(Backend& backend, const std::function<void()>& operation) {
  const auto before = backend.mark();
  operation();
  const auto after = backend.mark();
  backend.synchronize();
  return after->seconds_since(*before);
}

// The first call, which may build plans or choose an algorithm, is not counted.
std::vector<double> rounds_of(Backend& backend, const std::function<void()>& operation) {
  static_cast<void>(seconds_of(backend, operation));
  std::vector<double> rounds;
  double sum = 0;
  while (rounds.size() < kRounds || (sum < kMinSeconds && rounds.size() < kMaxRounds)) {
    rounds.push_back(seconds_of(backend, operation));
    sum += rounds.back();
  }
  return rounds;
}

double best(Backend& backend, const std::function<void()>& operation) {
  const std::vector<double> rounds = rounds_of(backend, operation);
  return *std::min_element(rounds.begin(), rounds.end());
}

// Numbers between -1 and 1 that are not alike: a GPU spends less power, and so runs faster, on zeros.
std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const std::uint64_t key = random_key(1, "profile");
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random_bits(key, i) >> 40) * 0x1p-23F - 1;
  }
  return values;
}

Tensor filled(Backend& backend, const Shape& shape) {
  const std::vector<float> values = numbers(shape.size());
  Tensor x = backend.tensor(shape, DType::kF32);
  backend.copy_from_host(values.data(), x);
  if (backend.compute_type() == DType::kF32) return x;
  Tensor converted = backend.tensor(shape, backend.compute_type());
  backend.run(ops::Cast{x, converted});
  backend.synchronize();
  return converted;
}

// A weight in all the forms that operations read.
struct FilledWeight {
  FilledWeight(Backend& backend, std::unique_ptr<WeightLayout> of) : layout(std::move(of)) {
    weight.layout = layout.get();
    weight.master = backend.tensor({layout->elements()}, DType::kF32);
    backend.import_weight(*layout, numbers(layout->shape().size()).data(), weight.master);
    if (backend.weights_mirror_master()) {
      weight.compute = weight.master;
      if (backend.compute_type() != DType::kF32 && layout->shape().rank() > 1) {
        weight.compute = backend.tensor({layout->elements()}, backend.compute_type());
        backend.run(ops::Cast{weight.master, weight.compute});
      }
      weight.backward = weight.compute;
    } else {
      backend.refresh_compute(weight);
    }
  }
  std::unique_ptr<WeightLayout> layout;
  Weight weight;
};

double time_call(Backend& backend, const ConvolutionCall& call) {
  using enum ConvolutionCall::Direction;
  const Conv2dSpec& spec = call.spec;
  const Shape& in = call.input;
  const Tensor x = filled(backend, in);
  const Tensor y = filled(backend, spec.output_shape(in));
  const FilledWeight w(backend, backend.conv2d_layout(spec, in));
  const FilledWeight bias(backend, backend.vector_layout(spec.out_channels));
  const Tensor dw = backend.tensor({w.layout->elements()}, DType::kF32);
  const Tensor dbias = call.bias ? backend.tensor({spec.out_channels}, DType::kF32) : Tensor();
  const auto operation = [&] {
    switch (call.direction) {
      case kForward: return backend.run(ops::Conv2dForward{spec, x, w.weight, call.bias ? &bias.weight : nullptr, y});
      case kBackwardInput: return backend.run(ops::Conv2dBackwardInput{spec, y, w.weight, x});
      case kBackwardWeight: return backend.run(ops::Conv2dBackwardWeight{spec, x, y, w.weight, dw, dbias, false});
    }
  };
  return median(rounds_of(backend, operation));
}

}  // namespace

DeviceBounds measure_bounds(Backend& backend) {
  DeviceBounds bounds;
  {
    const Tensor x = filled(backend, {kMatrix, kMatrix}), y = filled(backend, {kMatrix, kMatrix});
    const FilledWeight w(backend, backend.linear_layout(kMatrix, kMatrix, kMatrix));
    const double n = static_cast<double>(kMatrix);
    bounds.flops_per_second = 2 * n * n * n / best(backend, [&] {
                                backend.run(ops::LinearForward{x, w.weight, nullptr, false, y});
                              });
  }
  const Tensor x = backend.tensor({kVector}, DType::kF32), y = backend.tensor({kVector}, DType::kF32);
  backend.zero(x);
  backend.zero(y);
  bounds.bytes_per_second = bytes_of(x, y, y) / best(backend, [&] { backend.run(ops::Axpy{0.5F, x, y}); });
  return bounds;
}

std::map<ConvolutionCall, double> time_alone(Backend& backend, const std::map<ConvolutionCall, std::int64_t>& calls) {
  std::map<ConvolutionCall, double> seconds;
  for (const auto& [call, count] : calls) seconds[call] = time_call(backend, call);
  return seconds;
}

}  // namespace convoy
