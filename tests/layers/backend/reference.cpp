// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/backend/reference.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "layers/backend/observe/float16.h"
#include "layers/backend/onednn/bfloat16.h"

namespace convoy::reference {

namespace {

// Calls f(logical index, index in backend memory) for every element: rank 4 is channels-last there.
template <class F>
void for_each_place(const Shape& shape, F&& f) {
  if (shape.rank() != 4) {
    for (std::int64_t i = 0; i < shape.size(); ++i) f(static_cast<std::size_t>(i), static_cast<std::size_t>(i));
    return;
  }
  std::size_t logical = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        for (std::int64_t w = 0; w < shape[3]; ++w) {
          f(logical++, static_cast<std::size_t>(((n * shape[2] + h) * shape[3] + w) * shape[1] + c));
        }
      }
    }
  }
}

// Calls f(n, c, h, w) for every element.
template <class F>
void for_each_index(const Array& x, F&& f) {
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t c = 0; c < x.shape[1]; ++c) {
      for (std::int64_t h = 0; h < x.height(); ++h) {
        for (std::int64_t w = 0; w < x.width(); ++w) f(n, c, h, w);
      }
    }
  }
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Array uniform(const Shape& shape, std::uint64_t seed, double low, double high) {
  std::mt19937_64 engine(seed);
  Array array(shape);
  for (double& value : array.values) value = low + (high - low) * static_cast<double>(engine() >> 11) * 0x1p-53;
  return array;
}

Array whole(const Shape& shape, std::uint64_t seed, double step) {
  Array array = uniform(shape, seed);
  for (double& value : array.values) value = step * std::round(3 * value);
  return array;
}

Array rounded(Array array, DType dtype) {
  for (double& value : array.values) {
    value = static_cast<float>(value);
    if (dtype == DType::kBF16) value = static_cast<float>(BFloat16(static_cast<float>(value)));
  }
  return array;
}

Tensor Device::put(Array& array, DType dtype) {
  const Tensor tensor = backend.tensor(array.shape, dtype);
  std::vector<std::uint8_t> memory(tensor.bytes());
  for_each_place(array.shape, [&](std::size_t logical, std::size_t place) {
    double& value = array.values[logical];
    std::uint8_t* slot = memory.data() + place * dtype_size(dtype);
    const auto write = [&](auto stored) { std::memcpy(slot, &stored, sizeof stored); };
    switch (dtype) {
      case DType::kF32: write(static_cast<float>(value)), value = static_cast<float>(value); break;
      case DType::kBF16: {
        const BFloat16 stored(static_cast<float>(value));
        write(stored.bits), value = static_cast<float>(stored);
        break;
      }
      case DType::kF16: {
        const Float16 stored(static_cast<float>(value));
        write(stored.bits), value = static_cast<float>(stored);
        break;
      }
      case DType::kF64: write(value); break;
      case DType::kU8: write(static_cast<std::uint8_t>(value)), value = static_cast<std::uint8_t>(value); break;
      case DType::kI64: write(static_cast<std::int64_t>(value)), value = std::trunc(value); break;
    }
  });
  backend.copy_from_host(memory.data(), tensor);
  return tensor;
}

Tensor Device::put_labels(const std::vector<std::int64_t>& labels) {
  const Tensor tensor = backend.tensor({static_cast<std::int64_t>(labels.size())}, DType::kI64);
  backend.copy_from_host(labels.data(), tensor);
  return tensor;
}

Tensor Device::spoiled(const Shape& shape, DType dtype) {
  const Tensor tensor = backend.tensor(shape, dtype);
  const std::vector<std::uint8_t> memory(tensor.bytes(), 0xb7);
  backend.copy_from_host(memory.data(), tensor);
  return tensor;
}

std::vector<std::uint8_t> Device::bytes(const Tensor& tensor) {
  std::vector<std::uint8_t> memory(tensor.bytes());
  backend.copy_to_host(tensor, memory.data());
  return memory;
}

Array Device::get(const Tensor& tensor) {
  const std::vector<std::uint8_t> memory = bytes(tensor);
  Array array(tensor.shape());
  for_each_place(tensor.shape(), [&](std::size_t logical, std::size_t place) {
    const std::uint8_t* slot = memory.data() + place * dtype_size(tensor.dtype());
    const auto read = [&](auto stored) {
      std::memcpy(&stored, slot, sizeof stored);
      return stored;
    };
    double& value = array.values[logical];
    switch (tensor.dtype()) {
      case DType::kF32: value = read(float{}); break;
      case DType::kBF16: value = static_cast<float>(read(BFloat16{})); break;
      case DType::kF16: value = static_cast<float>(read(Float16{})); break;
      case DType::kF64: value = read(double{}); break;
      case DType::kU8: value = read(std::uint8_t{}); break;
      case DType::kI64: value = static_cast<double>(read(std::int64_t{})); break;
    }
  });
  return array;
}

ImportedWeight::ImportedWeight(Backend& backend, std::unique_ptr<WeightLayout> native, const Array& stored)
    : layout(std::move(native)) {
  const std::vector<float> host(stored.values.begin(), stored.values.end());
  weight.layout = layout.get();
  weight.master = backend.tensor({layout->elements()}, DType::kF32);
  backend.import_weight(*layout, host.data(), weight.master);
  backend.refresh_compute(weight);
}

Array ImportedWeight::exported(Backend& backend, const Tensor& native) const {
  std::vector<float> host(at(layout->shape().size()));
  backend.export_weight(*layout, native, host.data());
  Array array(layout->shape());
  array.values.assign(host.begin(), host.end());
  return array;
}

double rounding(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-8;
  return dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

void check_close(const Array& actual, const Array& expected, double relative, double absolute,
                 const std::string& what) {
  REQUIRE_MESSAGE(actual.values.size() == expected.values.size(), what);
  double worst = 0.0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    if ((std::isnan(a) && std::isnan(e)) || a == e) continue;
    const double excess = std::abs(a - e) / (absolute + relative * std::abs(e));
    if (!(excess <= worst)) {
      worst = excess;
      worst_at = i;
    }
  }
  CHECK_MESSAGE(worst <= 1.0, what,
                fmt::format(": element {} of {} is {}, expected {}: {} times the tolerance", worst_at,
                            actual.shape.str(), actual.values[worst_at], expected.values[worst_at], worst));
}

Moments batch_norm_statistics(const Array& x) {
  const std::size_t channels = at(x.shape[1]);
  const double count = static_cast<double>(x.shape.size()) / static_cast<double>(channels);
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  for_each_index(x, [&](auto n, auto c, auto h, auto w) { m.mean[at(c)] += x.at(n, c, h, w) / count; });
  for_each_index(x, [&](auto n, auto c, auto h, auto w) {
    m.variance[at(c)] += std::pow(x.at(n, c, h, w) - m.mean[at(c)], 2) / count;
  });
  return m;
}

Array batch_norm(const Array& x, const Moments& m, const Array& gamma, const Array& beta, double epsilon,
                 const Array* residual, bool relu) {
  Array y(x.shape);
  for_each_index(x, [&](auto n, auto c, auto h, auto w) {
    const double xhat = (x.at(n, c, h, w) - m.mean[at(c)]) / std::sqrt(m.variance[at(c)] + epsilon);
    double value = gamma.values[at(c)] * xhat + beta.values[at(c)];
    if (residual != nullptr) value += residual->at(n, c, h, w);
    y.at(n, c, h, w) = relu && value < 0.0 ? 0.0 : value;
  });
  return y;
}

BatchNormGradients batch_norm_backward(const Array& dy, const Array& x, const Array* y, const Array& gamma,
                                       double epsilon) {
  const Moments m = batch_norm_statistics(x);
  const std::int64_t channels = x.shape[1];
  const double count = static_cast<double>(x.shape.size() / channels);
  BatchNormGradients out{Array(x.shape), Array({channels}), Array({channels}), dy};
  for_each_index(x, [&](auto n, auto c, auto h, auto w) {
    if (y != nullptr && y->at(n, c, h, w) <= 0.0) out.dresidual.at(n, c, h, w) = 0.0;
  });
  // d/dvariance and d/dmean first, then back to each x.
  std::vector<double> dvariance(at(channels)), dmean(at(channels));
  for_each_index(x, [&](auto n, auto c, auto h, auto w) {
    const double deviation = x.at(n, c, h, w) - m.mean[at(c)], std = std::sqrt(m.variance[at(c)] + epsilon);
    const double g = out.dresidual.at(n, c, h, w), dxhat = g * gamma.values[at(c)];
    out.dbeta.values[at(c)] += g;
    out.dgamma.values[at(c)] += g * deviation / std;
    dvariance[at(c)] += dxhat * deviation * -0.5 / (std * std * std);
    dmean[at(c)] -= dxhat / std;  // the part through the variance is zero: deviations add up to zero
  });
  for_each_index(x, [&](auto n, auto c, auto h, auto w) {
    const double deviation = x.at(n, c, h, w) - m.mean[at(c)], std = std::sqrt(m.variance[at(c)] + epsilon);
    out.dx.at(n, c, h, w) = out.dresidual.at(n, c, h, w) * gamma.values[at(c)] / std +
                            dvariance[at(c)] * 2.0 * deviation / count + dmean[at(c)] / count;
  });
  return out;
}

namespace {

// Calls body(place in y, place in x, place in weight) for every product of a convolution.
template <class Body>
void for_each_product(const Conv2dSpec& s, const Shape& x, const Shape& y, Body&& body) {
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t o = 0; o < y[1]; ++o) {
      const std::int64_t inputs = x[1] / s.groups, first = o / (y[1] / s.groups) * inputs;  // of the group of o
      for (std::int64_t i = 0; i < inputs; ++i) {
        for (std::int64_t place = 0; place < y[2] * y[3] * s.kernel.area(); ++place) {
          const std::int64_t pixel = place / s.kernel.area(), tap = place % s.kernel.area();
          const std::int64_t h = pixel / y[3] * s.stride.height - s.padding.height + tap / s.kernel.width;
          const std::int64_t w = pixel % y[3] * s.stride.width - s.padding.width + tap % s.kernel.width;
          if (h < 0 || h >= x[2] || w < 0 || w >= x[3]) continue;
          body(((n * y[1] + o) * y[2] * y[3]) + pixel, ((n * x[1] + first + i) * x[2] + h) * x[3] + w,
               (o * inputs + i) * s.kernel.area() + tap);
        }
      }
    }
  }
}

}  // namespace

Array conv2d(const Conv2dSpec& s, const Array& x, const Array& weight) {
  const auto size = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    return (in + 2 * padding - kernel) / stride + 1;
  };
  Array y({x.shape[0], s.out_channels, size(x.shape[2], s.kernel.height, s.stride.height, s.padding.height),
           size(x.shape[3], s.kernel.width, s.stride.width, s.padding.width)});
  for_each_product(s, x.shape, y.shape, [&](std::int64_t to, std::int64_t from, std::int64_t by) {
    y.values[static_cast<std::size_t>(to)] +=
        x.values[static_cast<std::size_t>(from)] * weight.values[static_cast<std::size_t>(by)];
  });
  return y;
}

namespace {

// Calls f(place in [out, in, k, k], place in [k, k, in, out]) for each element of a weight of `shape`.
template <class F>
void for_each_weight(const Shape& shape, F&& f) {
  const std::int64_t out = shape[0], in = shape[1], taps = shape[2] * shape[3];
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        f(static_cast<std::size_t>((o * in + i) * taps + tap), static_cast<std::size_t>((tap * in + i) * out + o));
      }
    }
  }
}

}  // namespace

Array to_hwio(const Array& weight) {
  Array rows(Shape{weight.shape.size()});
  for_each_weight(weight.shape, [&](std::size_t from, std::size_t to) { rows.values[to] = weight.values[from]; });
  return rows;
}

Array from_hwio(const Array& rows, const Shape& shape) {
  Array weight(shape);
  for_each_weight(shape, [&](std::size_t to, std::size_t from) { weight.values[to] = rows.values[from]; });
  return weight;
}

Conv2dGradients conv2d_backward(const Conv2dSpec& s, const Array& dy, const Array& x, const Array& weight) {
  Conv2dGradients g{Array(x.shape), Array(weight.shape)};
  for_each_product(s, x.shape, dy.shape, [&](std::int64_t to, std::int64_t from, std::int64_t by) {
    const double d = dy.values[static_cast<std::size_t>(to)];
    g.dx.values[static_cast<std::size_t>(from)] += d * weight.values[static_cast<std::size_t>(by)];
    g.dweight.values[static_cast<std::size_t>(by)] += d * x.values[static_cast<std::size_t>(from)];
  });
  return g;
}

Pooled max_pool(const PoolSpec& spec, const Array& x) {
  const auto out = [](std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    return (extent + 2 * padding - kernel) / stride + 1;
  };
  const Shape shape{x.shape[0], x.shape[1],
                    out(x.shape[2], spec.kernel.height, spec.stride.height, spec.padding.height),
                    out(x.shape[3], spec.kernel.width, spec.stride.width, spec.padding.width)};
  Pooled pooled{Array(shape), Array(shape)};
  for_each_index(pooled.y, [&](auto n, auto c, auto oh, auto ow) {
    bool found = false;
    double best = 0.0;
    for (std::int64_t kh = 0; kh < spec.kernel.height; ++kh) {
      for (std::int64_t kw = 0; kw < spec.kernel.width; ++kw) {
        const std::int64_t h = oh * spec.stride.height - spec.padding.height + kh;
        const std::int64_t w = ow * spec.stride.width - spec.padding.width + kw;
        if (h < 0 || w < 0 || h >= x.shape[2] || w >= x.shape[3]) continue;
        const double value = x.at(n, c, h, w);
        if (found && !(value > best) && !std::isnan(value)) continue;
        found = true;
        best = value;
        pooled.argmax.at(n, c, oh, ow) = static_cast<double>(kh * spec.kernel.width + kw);
      }
    }
    pooled.y.at(n, c, oh, ow) = best;
  });
  return pooled;
}

Array max_pool_backward(const PoolSpec& spec, const Array& dy, const Array& argmax, const Shape& input) {
  Array dx(input);
  for_each_index(dy, [&](auto n, auto c, auto oh, auto ow) {
    const auto place = static_cast<std::int64_t>(argmax.at(n, c, oh, ow));
    const std::int64_t h = oh * spec.stride.height - spec.padding.height + place / spec.kernel.width;
    const std::int64_t w = ow * spec.stride.width - spec.padding.width + place % spec.kernel.width;
    dx.at(n, c, h, w) += dy.at(n, c, oh, ow);
  });
  return dx;
}

Array global_avg_pool(const Array& x) {
  Array y({x.shape[0], x.shape[1]});
  const double pixels = static_cast<double>(x.height() * x.width());
  for_each_index(x, [&](auto n, auto c, auto h, auto w) { y.at(n, c) += x.at(n, c, h, w) / pixels; });
  return y;
}

}  // namespace convoy::reference
