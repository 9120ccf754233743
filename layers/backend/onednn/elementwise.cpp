// SPDX-License-Identifier: Apache-2.0
//
// Element-wise kernels of the CPU backend and those that only move elements. All run over equal parts of the flat
// memory; relu_backward may work in place.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "layers/backend/checksum.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kGrain = 16384;  // elements that make a part worth a thread

// x and y [rows, pattern]; mean and std [pattern]. In torchvision's order of operations, so equal to it in bits.
template <class T>
CONVOY_VECTORIZED void normalize_kernel(const std::uint8_t* x, const float* mean, const float* std, std::int64_t count,
                                        T* y) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store((static_cast<float>(x[i]) / 255.0F - mean[i]) / std[i], y + i);
}

template <class From, class To>
CONVOY_VECTORIZED void cast_kernel(const From* x, To* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(load(x[i]), y + i);
}

template <class T>
CONVOY_VECTORIZED void relu_kernel(const T* x, T* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(positive_part(load(x[i])), y + i);
}

template <class T>
CONVOY_VECTORIZED void relu_backward_kernel(const T* dy, const T* y, T* dx, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(dy[i]);
    store(load(y[i]) <= 0.0F ? 0.0F : g, dx + i);
  }
}

template <class T>
CONVOY_VECTORIZED void add_kernel(const T* x, T* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) store(load(y[i]) + load(x[i]), y + i);
}

CONVOY_VECTORIZED void axpy_kernel(float scale, const float* x, float* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

CONVOY_VECTORIZED void lerp_kernel(float weight, const float* x, float* y, std::int64_t count) {
  CONVOY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] += weight * (x[i] - y[i]);
}

// Sets to [N, b, a] from from [N, a, b], in tiles that stay in the nearest cache on both sides.
template <class T>
void transpose_inner(const T* from, T* to, std::int64_t samples, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kTile = 16;
  const std::int64_t strips = (b + kTile - 1) / kTile;
  parallel_ranges(samples * strips, 1 + kGrain / (a * kTile), [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t strip = first; strip < last; ++strip) {
      const T* source = from + strip / strips * a * b;
      T* target = to + strip / strips * a * b;
      const std::int64_t j0 = strip % strips * kTile, j1 = std::min(b, j0 + kTile);
      for (std::int64_t i0 = 0; i0 < a; i0 += kTile) {
        const std::int64_t i1 = std::min(a, i0 + kTile);
        for (std::int64_t j = j0; j < j1; ++j) {
          for (std::int64_t i = i0; i < i1; ++i) target[j * a + i] = source[i * b + j];
        }
      }
    }
  });
}

// `image` is the shape [N, C, H, W] of either x or y.
void transpose_image(const Tensor& x, const Tensor& y, const Shape& image, bool to_channels_first) {
  if (y.size() == 0 || rehearsing()) return;
  const std::int64_t channels = image[1], pixels = image[2] * image[3];
  const std::int64_t a = to_channels_first ? pixels : channels, b = to_channels_first ? channels : pixels;
  dispatch_activation(x.dtype(), [&](auto type) {
    using T = decltype(type);
    if (a == 1 || b == 1) {
      std::copy_n(x.data<T>(), x.size(), y.data<T>());
    } else {
      transpose_inner(x.data<T>(), y.data<T>(), image[0], a, b);
    }
  });
}

struct Box {
  std::int64_t left, top, width, height;
  explicit Box(const std::int64_t* values) : left(values[0]), top(values[1]), width(values[2]), height(values[3]) {}
};

// Sets the box of each image to 0.
void erase(const Tensor& boxes, const Tensor& y) {
  const Shape& shape = y.shape();
  const std::int64_t channels = shape[1], height = shape[2], width = shape[3];
  dispatch_activation(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto* all = boxes.data<std::int64_t>();
    T* images = y.data<T>();
    parallel_ranges(shape[0], 1, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t n = first; n < last; ++n) {
        const Box box(all + 4 * n);
        for (std::int64_t row = box.top; row < box.top + box.height; ++row) {
          std::fill_n(images + ((n * height + row) * width + box.left) * channels, box.width * channels, T{});
        }
      }
    });
  });
}

// Sets y [N, wide, H, W] from x [N + 1, channels, H, W], which is normalised: NormalizeImages with weights.
void mix(const Tensor& x, const Tensor& weights, const Tensor& mixed, const Tensor& y) {
  const Shape& shape = y.shape();
  const std::int64_t channels = x.shape()[1], wide = shape[1], height = shape[2], width = shape[3];
  const std::int64_t image = height * width * channels;
  dispatch_activation(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const float *source = x.data<float>(), *weight = weights.data<float>();
    const auto* box_values = mixed.data<std::int64_t>();
    T* target = y.data<T>();
    parallel_ranges(shape[0] * height, 1, [=](std::int64_t first, std::int64_t last, int) {
      const Box box(box_values);
      const float own_weight = weight[0], partner_weight = weight[1];
      for (std::int64_t at = first; at < last; ++at) {
        const std::int64_t row = at % height;
        const bool within = row >= box.top && row < box.top + box.height;
        const std::int64_t begin = within ? box.left : width, end = within ? box.left + box.width : width;
        const float* partner = source + at * width * channels;
        const float* own = partner + image;
        T* out = target + at * width * wide;
        for (std::int64_t column = 0; column < width; ++column, own += channels, partner += channels, out += wide) {
          const bool mixes = column >= begin && column < end;
          for (std::int64_t c = 0; c < channels; ++c) {
            store(mixes ? own_weight * own[c] + partner_weight * partner[c] : own[c], out + c);
          }
          std::fill(out + channels, out + wide, T{});
        }
      }
    });
  });
}

}  // namespace

void OnednnBackend::run(const ops::NormalizeImages& op) {
  if (op.weights) {
    const Tensor all = tensor(op.x.shape(), DType::kF32);
    run(ops::NormalizeImages{op.x, op.mean, op.std, all, op.erased});
    if (op.y.size() > 0) mix(all, op.weights, op.mixed, op.y);
    return;
  }
  normalize(op);
  if (op.erased) erase(op.erased, op.y);
}

void OnednnBackend::normalize(const ops::NormalizeImages& op) {
  // The per-channel values are repeated to some hundred elements, so that three channels are as quick as many.
  const std::int64_t channels = op.x.shape()[1];
  if (op.y.shape()[1] != channels) return normalize_padded(op);
  const std::int64_t pattern = channels * (1 + 255 / channels);
  const Tensor repeated = tensor({2, pattern}, DType::kF32);
  float* means = repeated.data<float>();
  float* stds = means + pattern;
  for (std::int64_t i = 0; i < pattern; ++i) {
    means[i] = op.mean.data<float>()[op.mean.size() == 1 ? 0 : i % channels];
    stds[i] = op.std.data<float>()[op.std.size() == 1 ? 0 : i % channels];
  }
  const std::int64_t total = op.x.size(), rows = (total + pattern - 1) / pattern;
  dispatch_activation(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto* source = op.x.data<std::uint8_t>();
    T* target = op.y.data<T>();
    parallel_ranges(rows, 1 + kGrain / pattern, [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t at = first * pattern; at < std::min(total, last * pattern); at += pattern) {
        normalize_kernel(source + at, means, stds, std::min(pattern, total - at), target + at);
      }
    });
  });
}

// As another backend's convolutions read them.
void OnednnBackend::normalize_padded(const ops::NormalizeImages& op) {
  const std::int64_t channels = op.x.shape()[1], wide = op.y.shape()[1];
  const Tensor few = tensor(op.x.shape(), op.y.dtype());
  normalize({op.x, op.mean, op.std, few});
  if (rehearsing()) return;
  zero(op.y);
  dispatch_activation(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t pixel = 0; pixel < few.size() / channels; ++pixel) {
      std::copy_n(few.data<T>() + pixel * channels, channels, op.y.data<T>() + pixel * wide);
    }
  });
}

void OnednnBackend::run(const ops::Cast& op) {
  dispatch_activation(op.x.dtype(), [&](auto from) {
    dispatch_activation(op.y.dtype(), [&](auto to) {
      const auto* source = op.x.data<decltype(from)>();
      auto* target = op.y.data<decltype(to)>();
      parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
        cast_kernel(source + first, target + first, last - first);
      });
    });
  });
}

void OnednnBackend::run(const ops::Flatten& op) { transpose_image(op.x, op.y, op.x.shape(), true); }

void OnednnBackend::run(const ops::Unflatten& op) { transpose_image(op.dy, op.dx, op.dx.shape(), false); }

void OnednnBackend::run(const ops::ReluForward& op) {
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* source = op.x.data<T>();
    T* target = op.y.data<T>();
    parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
      relu_kernel(source + first, target + first, last - first);
    });
  });
}

void OnednnBackend::run(const ops::ReluBackward& op) {
  dispatch_activation(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* gradient = op.dy.data<T>();
    const T* output = op.y.data<T>();
    T* target = op.dx.data<T>();
    parallel_ranges(op.dy.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
      relu_backward_kernel(gradient + first, output + first, target + first, last - first);
    });
  });
}

void OnednnBackend::run(const ops::Add& op) {
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* source = op.x.data<T>();
    T* target = op.y.data<T>();
    parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
      add_kernel(source + first, target + first, last - first);
    });
  });
}

void OnednnBackend::run(const ops::Scale& op) {
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* source = op.x.data<T>();
    T* target = op.y.data<T>();
    parallel_ranges(op.x.size(), kGrain, [=, factor = op.factor](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) store(load(source[i]) * factor, target + i);
    });
  });
}

void OnednnBackend::run(const ops::ScaleBy& op) {
  float* values = op.x.data<float>();
  const float* factor = op.factor.data<float>();
  parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    const float by = *factor;
    if (by == 1.0F) return;
    for (std::int64_t i = first; i < last; ++i) values[i] *= by;
  });
}

void OnednnBackend::run(const ops::Lerp& op) {
  const float* source = op.x.data<float>();
  float* target = op.y.data<float>();
  parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    lerp_kernel(op.weight, source + first, target + first, last - first);
  });
}

void OnednnBackend::run(const ops::Exchange& op) {
  float *x = op.x.data<float>(), *y = op.y.data<float>();
  parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    std::swap_ranges(x + first, x + last, y + first);
  });
}

bool OnednnBackend::all_finite(const Tensor& x) {
  if (rehearsing()) return true;
  const float* values = x.data<float>();
  return std::all_of(values, values + x.size(), [](float value) { return std::isfinite(value); });
}

std::uint64_t OnednnBackend::checksum(const Tensor& x, std::int64_t first) {
  return memory_checksum(x.raw(), x.bytes(), first);
}

void OnednnBackend::run(const ops::Axpy& op) {
  const float* source = op.x.data<float>();
  float* target = op.y.data<float>();
  parallel_ranges(op.x.size(), kGrain, [=](std::int64_t first, std::int64_t last, int) {
    axpy_kernel(op.scale, source + first, target + first, last - first);
  });
}

}  // namespace convoy
