// SPDX-License-Identifier: Apache-2.0
//
// Two backends side by side: every operation runs on the subject, whose memory all tensors have, and again on the
// reference from copies of the same inputs; the first result that differs by more than its tolerance throws an Error
// with the operation, its shapes, the output and the difference. Outputs that an operation sets are filled with NaN
// before, so that it shows when one is left unwritten, or read. Slow, for finding what is wrong with a backend; work
// is never recorded. Invariant: what callers see is the subject's result.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "layers/backend/backend.h"

namespace convoy {

class CompareBackend final : public Backend {
 public:
  /// Both outlive this; the reference computes in float32. `tolerance`: largest |subject - reference| / |reference| by
  /// norm over an output (Euclidean), 0 for the default of the subject's compute type: 1e-5 for float32, 1e-2 for
  /// bfloat16 and float16, of whose inputs the reference gets the rounded values. Integers must be equal.
  CompareBackend(Backend& subject, Backend& reference, double tolerance = 0);

  /// Operations compared so far, by name, with the largest relative difference of each.
  struct Seen {
    std::int64_t calls = 0;
    double largest_difference = 0;
  };
  [[nodiscard]] const std::map<std::string, Seen>& seen() const { return seen_; }

  [[nodiscard]] std::string name() const override { return "compare"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType compute_type() const override { return subject_.compute_type(); }

  MemoryPool& pool() override { return subject_.pool(); }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& source, void* destination) override { subject_.copy_to_host(source, destination); }
  void zero(const Tensor& x) override;
  void synchronize() override { subject_.synchronize(); }
  bool all_finite(const Tensor& x) override;

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  [[nodiscard]] bool weights_mirror_master() const override { return subject_.weights_mirror_master(); }
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
  friend class Comparison;  // comparison.h: one operation

  Backend& subject_;
  Backend& reference_;
  double tolerance_;
  std::map<std::string, Seen> seen_;
};

}  // namespace convoy
