// SPDX-License-Identifier: Apache-2.0
//
// What the CPU kernels are held against: the same operations in float64, one value at a time, with [N, C, H, W]
// index arithmetic and nothing shared with the kernels; and the way of test data into a backend and out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/backend/onednn/onednn_backend.h"

namespace convoy::reference {

/// Values in the logical order of the shape: [N, C, H, W] is row-major here, unlike in a backend.
struct Array {
  Shape shape;
  std::vector<double> values;

  Array() = default;
  explicit Array(const Shape& s, double value = 0.0) : shape(s), values(static_cast<std::size_t>(s.size()), value) {}
  /// Of rank 2 or 4.
  double& at(std::int64_t n, std::int64_t c, std::int64_t h = 0, std::int64_t w = 0) {
    return values[index(n, c, h, w)];
  }
  [[nodiscard]] double at(std::int64_t n, std::int64_t c, std::int64_t h = 0, std::int64_t w = 0) const {
    return values[index(n, c, h, w)];
  }
  [[nodiscard]] std::int64_t height() const { return shape.rank() == 4 ? shape[2] : 1; }
  [[nodiscard]] std::int64_t width() const { return shape.rank() == 4 ? shape[3] : 1; }

 private:
  [[nodiscard]] std::size_t index(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return static_cast<std::size_t>(((n * shape[1] + c) * height() + h) * width() + w);
  }
};

/// Uniform in [low, high), the same for the same seed everywhere.
Array uniform(const Shape& shape, std::uint64_t seed, double low = -1.0, double high = 1.0);

/// Whole numbers up to 3 times `step`.
Array whole(const Shape& shape, std::uint64_t seed, double step = 1.0);

/// As float32 or bfloat16 holds them.
[[nodiscard]] Array rounded(Array array, DType dtype = DType::kBF16);

/// A CPU backend with a number of threads, and arrays on their way to and from it.
struct Device {
  OnednnBackend backend;
  explicit Device(int threads, DType compute = DType::kF32) : backend(threads, compute) {}

  /// Copies to the backend, rounding to dtype; `array` becomes what was stored.
  Tensor put(Array& array, DType dtype = DType::kF32);
  Tensor put_labels(const std::vector<std::int64_t>& labels);
  /// A tensor whose elements are all set to something that no test expects.
  Tensor spoiled(const Shape& shape, DType dtype = DType::kF32);
  [[nodiscard]] Array get(const Tensor& tensor);
  [[nodiscard]] std::vector<std::uint8_t> bytes(const Tensor& tensor);
};

/// A stored weight as a backend keeps it, with the copies that its uses read.
struct ImportedWeight {
  std::unique_ptr<WeightLayout> layout;
  Weight weight;

  ImportedWeight(Backend& backend, std::unique_ptr<WeightLayout> native, const Array& stored);
  /// Its gradient, or another tensor of its layout, as it is stored.
  [[nodiscard]] Array exported(Backend& backend, const Tensor& native) const;
};

/// The rounding of one store, relative to the value: half a unit in the last place.
double rounding(DType dtype);

/// Checks |actual - expected| <= absolute + relative * |expected| everywhere; NaN equals NaN.
void check_close(const Array& actual, const Array& expected, double relative, double absolute, const std::string& what);

// ---- operations

struct Moments {
  std::vector<double> mean, variance;  ///< [C]; variance is biased
};
Moments batch_norm_statistics(const Array& x);
Array batch_norm(const Array& x, const Moments& moments, const Array& gamma, const Array& beta, double epsilon,
                 const Array* residual, bool relu);
struct BatchNormGradients {
  Array dx, dgamma, dbeta, dresidual;
};
/// By the chain rule over mean and variance of this same x. y (or null) is the output whose ReLU masks dy.
BatchNormGradients batch_norm_backward(const Array& dy, const Array& x, const Array* y, const Array& gamma,
                                       double epsilon);

Array conv2d(const Conv2dSpec& spec, const Array& x, const Array& weight);
struct Conv2dGradients {
  Array dx, dweight;
};
struct ConvCase {
  Conv2dSpec spec;  ///< in, out, kernel, stride, padding, groups
  std::int64_t images, height, width;
  [[nodiscard]] Shape input() const { return {images, spec.in_channels, height, width}; }
};
/// A weight [out, in, k, k] as rows of `out` for each tap and input channel, and back.
Array to_hwio(const Array& weight);
Array from_hwio(const Array& rows, const Shape& shape);
Conv2dGradients conv2d_backward(const Conv2dSpec& spec, const Array& dy, const Array& x, const Array& weight);

struct Pooled {
  Array y, argmax;
};
Pooled max_pool(const PoolSpec& spec, const Array& x);
Array max_pool_backward(const PoolSpec& spec, const Array& dy, const Array& argmax, const Shape& input);
Array global_avg_pool(const Array& x);

struct LossResult {
  double loss = 0.0, top1 = 0.0, top5 = 0.0;
  Array gradient;  ///< of the sum of losses
};
LossResult cross_entropy(const Array& logits, const std::vector<std::int64_t>& labels, double smoothing);
/// Against targets [N, K]; top-1 and top-5 against the first of the largest.
LossResult cross_entropy(const Array& logits, const Array& targets, double smoothing);
/// With the scores of float targets (top1, top5 hold them).
LossResult pointwise_loss(LossFunction function, const Array& predictions, const Array& targets, double smoothing = 0);

}  // namespace convoy::reference
