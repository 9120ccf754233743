// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation of the CPU backend, forward, on activations seen as rows of contiguous channels. Variances are
// sums of squares around a pivot that follows the running mean, merged by Chan's formula: the running mean differs from
// a block's mean by so little that the squares of all those differences add up to at most twice the total sum of
// squares, so float is enough whatever |mean| / std is. Partial sums of threads are merged in thread order.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers/backend/onednn/batch_norm_bf16.h"
#include "layers/backend/onednn/batch_norm_rows.h"
#include "layers/backend/onednn/batch_norm_sums.h"
#include "layers/backend/onednn/element.h"
#include "layers/backend/onednn/onednn_backend.h"
#include "layers/backend/onednn/relu_mask.h"
#include "layers/backend/onednn/vectorized.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kPivotRows = 32;

template <class T>
void sum_moments(const T* x, std::int64_t rows, std::int64_t channels, const float* pivot, float* sums,
                 float* squares) {
  vectorized_pixels<T>([=](auto width, auto pixel) CONVOY_INLINE_LAMBDA {
    add_moments<width>(static_cast<const decltype(pixel)*>(x), rows, channels, pivot, sums, squares);
  });
}

// Merges a block of `rows` rows, known by its sums around pivot, into mean and m2 (the sum of squares around mean) of
// `before` rows; clears the sums and sets pivot to the new mean. All [channels].
CONVOY_VECTORIZED void merge_block(std::int64_t channels, double rows, double before, float* sums, float* squares,
                                   float* pivot, double* mean, double* m2) {
  const double weight = rows / (before + rows);
  const double spread = before * weight;
  const double inverse = 1.0 / rows;
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const double sum = sums[c], shift = sum * inverse;
    const double inside = squares[c] - sum * shift;
    const double distance = pivot[c] + shift - mean[c];
    mean[c] += distance * weight;
    m2[c] += (inside < 0.0 ? 0.0 : inside) + distance * distance * spread;
    pivot[c] = static_cast<float>(mean[c]);
    sums[c] = 0.0F;
    squares[c] = 0.0F;
  }
}

// One thread's part: sets mean and m2 [channels] over x [rows, channels], rows > 0. work: float [3 * padded].
template <class T>
void moments(const T* x, std::int64_t rows, std::int64_t channels, float* work, double* mean, double* m2) {
  float *pivot = work, *sums = pivot + padded(channels), *squares = sums + padded(channels);
  std::fill_n(work, 3 * padded(channels), 0.0F);
  std::fill_n(mean, channels, 0.0);
  std::fill_n(m2, channels, 0.0);
  // The first rows go twice: their mean first, as the pivot.
  const std::int64_t head = std::min(rows, kPivotRows);
  sum_moments(x, head, channels, pivot, sums, squares);
  for (std::int64_t c = 0; c < channels; ++c) pivot[c] = sums[c] / static_cast<float>(head);
  std::fill_n(sums, 2 * padded(channels), 0.0F);
  for (std::int64_t row = 0; row < rows; row += kBlockRows<T>) {
    const std::int64_t block = std::min(kBlockRows<T>, rows - row);
    sum_moments(x + row * channels, block, channels, pivot, sums, squares);
    merge_block(channels, static_cast<double>(block), static_cast<double>(row), sums, squares, pivot, mean, m2);
  }
}

// Merges the mean and m2 of another thread's `rows` rows into those of `before` rows. All [channels].
CONVOY_VECTORIZED void merge_part(std::int64_t channels, double rows, double before, const double* part_mean,
                                  const double* part_m2, double* mean, double* m2) {
  const double weight = rows / (before + rows), spread = before * weight;
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const double distance = part_mean[c] - mean[c];
    mean[c] += distance * weight;
    m2[c] += part_m2[c] + distance * distance * spread;
  }
}

CONVOY_VECTORIZED void round_moments(std::int64_t channels, double rows, const double* mean, const double* m2,
                                     float* rounded_mean, float* variance) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    rounded_mean[c] = static_cast<float>(mean[c]);
    variance[c] = static_cast<float>(m2[c] / rows);
  }
}

// Sets y = scale * x + shift to gamma * (x - mean) / sqrt(variance + epsilon) + beta. All [channels].
CONVOY_VECTORIZED void set_scale(std::int64_t channels, const float* mean, const float* variance, const float* gamma,
                                 const float* beta, float epsilon, float* scale, float* shift) {
  CONVOY_INDEPENDENT
  for (std::int64_t c = 0; c < channels; ++c) {
    const double factor = gamma[c] * inverse_std(variance[c], epsilon);
    scale[c] = static_cast<float>(factor);
    shift[c] = static_cast<float>(beta[c] - mean[c] * factor);
  }
}

// x, residual, y [rows, channels]; scale, shift [channels].
template <class T, bool kResidual, bool kRelu>
CONVOY_VECTORIZED void apply_kernel(const T* x, const float* scale, const float* shift, const T* residual,
                                    std::int64_t rows, std::int64_t channels, T* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
    CONVOY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) {
      float value = load(x[c]) * scale[c] + shift[c];
      if constexpr (kResidual) value += load(residual[c]);
      if constexpr (kRelu) value = positive_part(value);
      store(value, y + c);
    }
    x += channels;
    y += channels;
    if constexpr (kResidual) residual += channels;
  }
}

// Sets mask [rows, mask_row_bytes(channels)] to where y [rows, channels] is above 0 or NaN.
template <class Floats>
CONVOY_INLINE void mask_kernel(const float* y, std::int64_t rows, std::int64_t channels, std::uint8_t* mask) {
  constexpr int width = kWidth<Floats>;
  for (std::int64_t row = 0; row < rows; ++row, y += channels) {
    for (std::int64_t block = 0; block < channels; block += kMaskBlock, mask += kLanes) {
      const std::int64_t count = std::min(kMaskBlock, channels - block);
      for (std::int64_t lane = 0; lane < kLanes; lane += width) {
        Vector<std::uint32_t, width> bits{}, bit = Vector<std::uint32_t, width>{} + 1;
        for (std::int64_t c = lane; c < count; c += kLanes, bit += bit) {
          Floats value;
          load(y + block + c, value);
          bits |= value <= 0.0F ? Vector<std::uint32_t, width>{} : bit;
        }
        using Bytes = Vector<std::uint8_t, width>;
        const Bytes packed = __builtin_convertvector(bits, Bytes);
        std::memcpy(mask + lane, &packed, sizeof(packed));
      }
    }
  }
}

// The bytes of a row of a mask of bits (relu_mask.h), or 0 where y is the mask.
std::int64_t mask_bytes(std::int64_t channels, DType dtype) {
  if (dtype == DType::kBF16) return has_bf16_rows(channels) ? channels / 8 : 0;
  return channels % kLanes == 0 ? mask_row_bytes(channels) : 0;
}

// Rows [first, last) of y by the kernel above or that of batch_norm_bf16.h, and their mask unless `mask`, which begins
// with that of row 0, is null. x, residual, y: from row `first` on.
template <class T, bool kResidual, bool kRelu>
void apply_rows(const T* x, const float* scale, const float* shift, const T* residual, std::int64_t first,
                std::int64_t last, std::int64_t channels, T* y, void* mask) {
  const std::int64_t rows = last - first;
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (has_bf16_rows(channels)) {
      auto* bits = mask != nullptr ? static_cast<std::uint16_t*>(mask) + first * channels / kLanes : nullptr;
      return apply_bf16(x, scale, shift, residual, kRelu, rows, channels, y, bits);
    }
  } else if (mask != nullptr) {
    auto* bits = static_cast<std::uint8_t*>(mask) + first * mask_row_bytes(channels);
    // So few rows at a time that they are still in the first-level cache when the mask is made of them.
    const std::int64_t block = 1 + 2048 / channels;
    for (std::int64_t row = 0; row < rows; row += block) {
      const std::int64_t at = row * channels, some = std::min(block, rows - row);
      apply_kernel<T, kResidual, kRelu>(x + at, scale, shift, kResidual ? residual + at : nullptr, some, channels,
                                        y + at);
      auto* row_bits = bits + row * mask_row_bytes(channels);
      vectorized([=](auto width)
                     CONVOY_INLINE_LAMBDA { mask_kernel<Vector<float, width>>(y + at, some, channels, row_bits); });
    }
    return;
  }
  apply_kernel<T, kResidual, kRelu>(x, scale, shift, residual, rows, channels, y);
}

// Calls f with two std::bool_constants.
template <class F>
void dispatch_flags(bool first, bool second, F&& f) {
  if (first) {
    second ? f(std::true_type{}, std::true_type{}) : f(std::true_type{}, std::false_type{});
  } else {
    second ? f(std::false_type{}, std::true_type{}) : f(std::false_type{}, std::false_type{});
  }
}

}  // namespace

void OnednnBackend::run(const ops::BatchNormStatistics& op) {
  const ChannelRows view(op.x.shape());
  const std::int64_t channels = view.channels, threads = omp_get_max_threads();
  const std::int64_t stride = 2 * padded(channels) + 8;  // per thread: its rows, 7 unused, mean, m2
  double* partial = scratch(static_cast<std::size_t>(threads * stride));
  for (std::int64_t t = 0; t < threads; ++t) partial[t * stride] = 0.0;
  const Tensor work = tensor({threads, 3 * padded(channels)}, DType::kF32);
  if (rehearsing()) return;
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* data = op.x.data<T>();
    float* floats = work.data<float>();
    parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int thread) {
      if (first == last) return;
      double* mine = partial + thread * stride;
      mine[0] = static_cast<double>(last - first);
      moments(data + first * channels, last - first, channels, floats + thread * 3 * padded(channels), mine + 8,
              mine + 8 + padded(channels));
    });
  });
  double rows = partial[0];
  double *mean = partial + 8, *m2 = mean + padded(channels);
  if (rows == 0.0) std::fill_n(mean, 2 * padded(channels), 0.0);
  for (std::int64_t t = 1; t < threads; ++t) {
    const double* part = partial + t * stride;
    if (part[0] == 0.0) continue;
    merge_part(channels, part[0], rows, part + 8, part + 8 + padded(channels), mean, m2);
    rows += part[0];
  }
  round_moments(channels, std::max(rows, 1.0), mean, m2, op.mean.data<float>(), op.variance.data<float>());
  if (op.coefficients) set_coefficients(op);
  if (!op.step_mean) return;
  run(ops::Axpy{op.share, op.mean, op.step_mean});
  run(ops::Axpy{op.variance_share(), op.variance, op.step_variance});
}

// What fused operations of another backend would read.
void OnednnBackend::set_coefficients(const ops::BatchNormStatistics& op) {
  const std::int64_t channels = op.mean.size();
  auto* rows = op.coefficients.data<float>();
  for (std::int64_t c = 0; c < channels; ++c) {
    const double inverse = inverse_std(op.variance.data<float>()[c], op.epsilon);
    const double scale = op.gamma.data<float>()[c] * inverse;
    rows[c] = op.mean.data<float>()[c];
    rows[channels + c] = static_cast<float>(inverse);
    rows[2 * channels + c] = static_cast<float>(scale);
    rows[3 * channels + c] = static_cast<float>(op.beta.data<float>()[c] - op.mean.data<float>()[c] * scale);
  }
  if (op.rounded) run(ops::Cast{op.coefficients.view(2 * channels, {2, channels}), op.rounded});
}

void OnednnBackend::run(const ops::BatchNormApply& op) {
  if (run_apart(op)) return;
  const ChannelRows view(op.x.shape());
  const std::int64_t channels = view.channels;
  Tensor mask;
  if (op.mask != nullptr) {
    if (const std::int64_t bytes = mask_bytes(channels, op.x.dtype()); bytes > 0) {
      mask = tensor({view.rows, bytes}, DType::kU8);
    }
    *op.mask = mask ? mask : op.y;
  }
  const Tensor coefficients = tensor({2, padded(channels)}, DType::kF32);
  if (rehearsing()) return;
  float *scale = coefficients.data<float>(), *shift = scale + padded(channels);
  set_scale(channels, op.mean.data<float>(), op.variance.data<float>(), op.gamma.data<float>(), op.beta.data<float>(),
            op.epsilon, scale, shift);
  dispatch_activation(op.x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_flags(static_cast<bool>(op.residual), op.relu, [&](auto has_residual, auto has_relu) {
      constexpr bool kResidual = decltype(has_residual)::value, kRelu = decltype(has_relu)::value;
      const T *input = op.x.data<T>(), *other = op.residual.data<T>();
      T* output = op.y.data<T>();
      void* bits = mask ? mask.raw() : nullptr;
      parallel_ranges(view.rows, view.grain(), [=](std::int64_t first, std::int64_t last, int) {
        const std::int64_t at = first * channels;
        apply_rows<T, kResidual, kRelu>(input + at, scale, shift, kResidual ? other + at : nullptr, first, last,
                                        channels, output + at, bits);
      });
    });
  });
}

}  // namespace convoy
