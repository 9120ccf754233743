// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/bias_gradient.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "layers/backend/onednn/element.h"
#include "layers/base/host_loops.h"

namespace convoy {

namespace {

constexpr std::int64_t kSumRows = 32;      // in float32
constexpr std::int64_t kSumChannels = 64;  // at a time

// Sets sums [count], count <= kSumChannels, to those of the columns of dy [rows, step].
template <class T>
CONVOY_VECTORIZED void sum_columns(const T* dy, std::int64_t rows, std::int64_t step, std::int64_t count, float* sums) {
  double totals[kSumChannels] = {};
  for (std::int64_t row = 0; row < rows; row += kSumRows) {
    float some[kSumChannels] = {};
    for (std::int64_t r = row; r < std::min(row + kSumRows, rows); ++r) {
      for (std::int64_t i = 0; i < count; ++i) some[i] += load(dy[r * step + i]);
    }
    for (std::int64_t i = 0; i < count; ++i) totals[i] += static_cast<double>(some[i]);
  }
  for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<float>(totals[i]);
}

class WithBiasGradient final : public WeightGradient {
 public:
  explicit WithBiasGradient(std::unique_ptr<WeightGradient> inner)
      : WeightGradient(inner->format()), inner_(std::move(inner)) {}

  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    inner_->run(state, backend, x, dy, dw, Tensor());
    if (!dbias) return;
    const ChannelRows shape(dy.shape());
    auto* sums = dbias.data<float>();
    dispatch_activation(dy.dtype(), [&](auto type) {
      const auto* gradient = dy.data<decltype(type)>();
      parallel_ranges((shape.channels + kSumChannels - 1) / kSumChannels, 1,
                      [=](std::int64_t first, std::int64_t last, int) {
                        for (std::int64_t c = first * kSumChannels; c < last * kSumChannels; c += kSumChannels) {
                          sum_columns(gradient + c, shape.rows, shape.channels,
                                      std::min(kSumChannels, shape.channels - c), sums + c);
                        }
                      });
    });
  }

 private:
  std::unique_ptr<WeightGradient> inner_;
};

}  // namespace

std::unique_ptr<WeightGradient> with_bias_gradient(std::unique_ptr<WeightGradient> inner) {
  return std::make_unique<WithBiasGradient>(std::move(inner));
}

}  // namespace convoy
