// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: convolutions and matrix products by oneDNN (2 and 3), the rest by own kernels over OpenMP threads.
// Memory-bound kernels work channels-last, so that every per-channel loop is contiguous. One file per operation
// group beside this one. oneDNN's types stay behind OnednnState (onednn_state.h).
// Invariant: equal inputs, shapes and thread count give equal bits.
#pragma once

#include <memory>
#include <vector>

#include "layers/backend/backend.h"

namespace convoy {

struct OnednnState;

class OnednnBackend final : public Backend {
 public:
  /// threads: OpenMP threads of this process's kernels, at least 1. compute: kF32 or kBF16, of activations.
  OnednnBackend(int threads, DType compute);
  ~OnednnBackend() override;

  /// Whether products of bfloat16 activations are taken in bfloat16, and not in float32: where that is faster.
  static bool multiplies_bf16();
  /// "oneDNN 2.6.3, AVX2"
  static std::string library_description();

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType compute_type() const override { return compute_; }

  MemoryPool& pool() override { return pool_; }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& source, void* destination) override;
  void zero(const Tensor& x) override;
  bool all_finite(const Tensor& x) override;

  [[nodiscard]] std::unique_ptr<Backend> with_direct_convolutions() const override;
  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  void refresh_compute(Weight& weight) override;

  void normalize_images(const Tensor& x, const Tensor& mean, const Tensor& std, const Tensor& y) override;
  void cast(const Tensor& x, const Tensor& y) override;
  void flatten(const Tensor& x, const Tensor& y) override;
  void unflatten(const Tensor& dy, const Tensor& dx) override;

  void linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) override;
  void linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) override;
  void linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight& w, const Tensor& dw, const Tensor& dbias,
                              bool accumulate) override;

  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                      const Tensor& y) override;
  void conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) override;
  void conv2d_backward_input_add(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) override;
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                              const Tensor& dw, const Tensor& dbias, bool accumulate) override;

  void batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) override;
  void batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                        const Tensor& beta, float epsilon, const Tensor& residual, bool relu, const Tensor& y) override;
  Tensor batch_norm_apply_relu(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                               const Tensor& beta, float epsilon, const Tensor& residual, const Tensor& y) override;
  void batch_norm_backward_reduce(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                  const Tensor& variance, float epsilon, const Tensor& dgamma,
                                  const Tensor& dbeta) override;
  void batch_norm_backward_apply(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                 const Tensor& variance, const Tensor& gamma, const Tensor& dgamma, const Tensor& dbeta,
                                 double count, float epsilon, const Tensor& dx) override;
  void batch_norm_backward_residual(const Tensor& dy, const Tensor& y, const Tensor& dresidual) override;

  void relu_forward(const Tensor& x, const Tensor& y) override;
  void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) override;
  void add(const Tensor& x, const Tensor& y) override;
  void scale(float factor, const Tensor& x) override;
  void axpy(float scale, const Tensor& x, const Tensor& y) override;
  void max_pool_forward(const PoolSpec& spec, const Tensor& x, const Tensor& y, const Tensor& argmax) override;
  void max_pool_backward(const PoolSpec& spec, const Tensor& dy, const Tensor& argmax, const Tensor& dx) override;
  void global_avg_pool_forward(const Tensor& x, const Tensor& y) override;
  void global_avg_pool_backward(const Tensor& dy, const Tensor& dx) override;

  void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float smoothing, float scale,
                             const Tensor& dlogits, const Tensor& totals) override;
  void mse(const Tensor& predictions, const Tensor& targets, float scale, const Tensor& dpredictions,
           const Tensor& totals) override;

  void sgd_update(const SgdUpdate& update, const Tensor& values, const Tensor& gradients,
                  const Tensor& momentum) override;
  void adamw_update(const AdamwUpdate& update, const Tensor& values, const Tensor& gradients,
                    const Tensor& first_moment, const Tensor& second_moment) override;
  void lars_update(const LarsUpdate& update, std::span<const Segment> segments, const Tensor& values,
                   const Tensor& gradients, const Tensor& momentum) override;

 private:
  void apply_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                        const Tensor& beta, float epsilon, const Tensor& residual, bool relu, const Tensor& y,
                        const Tensor& mask);

  /// Host memory for per-thread partial sums: at least `count` doubles, kept between calls.
  double* scratch(std::size_t count);

  class HostMemory final : public RawMemory {
   public:
    void* allocate(std::size_t bytes) override;
    void release(void* data) noexcept override;
  };

  int threads_;
  DType compute_;
  HostMemory memory_;
  MemoryPool pool_{memory_};
  std::vector<double> scratch_;
  std::unique_ptr<OnednnState> state_;  // last: its cached primitives may hold pooled memory
};

}  // namespace convoy
