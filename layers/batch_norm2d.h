// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation (Ioffe & Szegedy 2015) over N, H, W, fused with an addition and a ReLU that follow it.
// Training normalises with the microbatch's statistics, or with those of all replicas when the build context has a
// reducer. Parameters weight [C], bias [C]; buffers running_mean, running_var, num_batches_tracked, updated once a
// step from the sample-weighted mean of the statistics of all microbatches (parameters.h). epsilon 1e-5. A frozen batch
// norm also normalises with its buffers in training, and does not update them (torchvision.ops.FrozenBatchNorm2d;
// eval() of a torch.nn.BatchNorm2d).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/activation.h"
#include "layers/layer.h"

namespace convoy {

class BatchNorm2d final : public Layer {
 public:
  explicit BatchNorm2d(bool relu, float initial_weight = 1) : relu_(relu), initial_weight_(initial_weight) {}
  /// [N, C, H, W] or [N, C], unchanged.
  Shape build(BuildContext& context, const std::string& path, const Shape& input) override;
  [[nodiscard]] Shape output_shape(const Shape& input) const override { return input; }
  Tensor forward(const Tensor& x, Cache& cache, Mode mode) override;
  /// The first half of forward(): memory for the moments of the input, which the caller computes; empty in evaluation.
  [[nodiscard]] Moments moments(Cache& cache, Mode mode);
  /// The second half, once the moments are computed; the normalisation itself stays pending. `shortcut` (x's shape, or
  /// empty) is added before the ReLU.
  /// A shortcut whose normalisation is pending stays so.
  Activation forward_pending(const Tensor& x, const Activation& shortcut, Cache& cache, Mode mode);
  [[nodiscard]] BatchNorm2d* output_norm() override { return relu_ ? this : nullptr; }
  /// After the forward of a ReLU behind a shortcut: its mask.
  [[nodiscard]] Tensor mask(Cache& cache) const;
  /// In a second forward, in place of an application of the norm.
  void set_mask(Cache& cache, Tensor mask);

  /// The gradient of a batch norm's output, and what is left of its way through the ReLU.
  struct OutputGradient {
    Tensor dy;
    Tensor mask{};                               ///< of the ReLU; empty when dy is masked, or `recompute`
    bool recompute = false;                      ///< the mask, from the batch norm's input
    const ops::MaxPoolBackward* pool = nullptr;  ///< what computes dy, which is empty then
  };
  Tensor backward_input(const Tensor& dy, Cache& cache) override {
    return backward_through(output_gradient(dy, cache), cache);
  }
  /// Where the backend fuses batch norms dy comes back masked.
  [[nodiscard]] OutputGradient output_gradient(const Tensor& dy, Cache& cache);
  /// backward_input() from the gradient of what this norm's output became a part of: itself, or the sum of a block,
  /// whose mask another norm has.
  Tensor backward_through(const OutputGradient& gradient, Cache& cache);
  /// The reductions of this batch norm over dx, the gradient of its output, for the operation that computes that, which
  /// masks it; nothing where they must be apart. Refers to dx and to the cache. Unless it is run, drop_reductions().
  [[nodiscard]] std::optional<ops::BatchNormBackwardReduce> reductions(const Tensor& dx, Cache& cache);
  void drop_reductions(Cache& cache);
  /// Nothing: the gradients of the parameters are those that backward_input() needs.
  void backward_weight(Cache& /*cache*/) override {}

 private:
  Tensor backward_frozen(const OutputGradient& gradient);
  void reduce_gradients(double count, Tensor& dgamma, Tensor& dbeta);
  // Gives dgamma and dbeta this memory, float32 [2, C].
  void make_sums(Cache& cache, const Tensor& memory);
  // Sets them. Refers to its arguments.
  [[nodiscard]] ops::BatchNormBackwardReduce reduce(Cache& cache, const Tensor& dy, const Tensor& mask, bool recompute,
                                                    const Tensor& masked);
  [[nodiscard]] bool fused() const;
  void reduce_statistics(double count, const Tensor& mean, const Tensor& variance);
  // x normalised with these statistics; its application leaves the mask of ReLU for backward.
  Activation normalized(const Tensor& x, const Tensor& mean, const Tensor& variance, const Activation& shortcut,
                        Cache& cache, Mode mode);
  [[nodiscard]] static std::int64_t values_per_channel(const Tensor& x) { return x.size() / x.shape()[1]; }

  bool relu_;
  float initial_weight_;
  std::int64_t channels_ = 0;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
  RunningStatistics* running_ = nullptr;
  StatisticsReducer* reducer_ = nullptr;
  std::string path_;
  std::vector<double> host_;  // sums on their way through the reducer
};

struct BatchNorm2dOptions {
  static constexpr std::string_view kName = "batch_norm2d";
  template <class Visitor, class Self>
  static void visit(Visitor& /*v*/, Self& /*o*/) {}
  [[nodiscard]] std::unique_ptr<Layer> make(bool relu_follows) const {
    return std::make_unique<BatchNorm2d>(relu_follows);
  }
  bool operator==(const BatchNorm2dOptions&) const = default;
};

}  // namespace convoy
