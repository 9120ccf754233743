// SPDX-License-Identifier: Apache-2.0
//
// A backend that times every operation of another one: how long, how often, for which unit of the model, at which cost.
// Times are taken by the backend's own marks (events on a GPU), so nothing waits within a step. Work is never recorded
// for replay. Invariant: results are the inner backend's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/backend/observe/operation_cost.h"

namespace convoy {

/// One operation on one shape in one unit of the model.
struct ProfileKey {
  std::string operation;  ///< "conv2d_forward"
  std::string unit;       ///< "layer1.0"; a phase's name outside of units
  std::string detail;     ///< "3x3 64 -> 64, [16, 64, 32, 32]"
  bool operator<(const ProfileKey& other) const {
    return std::tie(operation, unit, detail) < std::tie(other.operation, other.unit, other.detail);
  }
};

struct ProfileEntry {
  std::int64_t calls = 0;
  double seconds = 0;
  OperationCost cost;  ///< of all calls
};

/// A convolution of the step, to be timed alone.
struct ConvolutionCall {
  enum class Direction { kForward, kBackwardInput, kBackwardWeight };
  Direction direction = Direction::kForward;
  Conv2dSpec spec;
  Shape input;
  bool bias = false;
  auto key() const {
    return std::tuple(direction, spec.in_channels, spec.out_channels, spec.kernel, spec.stride, spec.padding,
                      input.str(), bias);
  }
  bool operator<(const ConvolutionCall& other) const { return key() < other.key(); }
};

class ProfileBackend final : public Backend {
 public:
  /// `inner` outlives this.
  explicit ProfileBackend(Backend& inner) : inner_(inner) {}

  [[nodiscard]] Backend& inner() { return inner_; }
  /// Forgets what was timed so far (warm-up).
  void restart();
  /// Waits for what is under way and gives everything since restart().
  [[nodiscard]] const std::map<ProfileKey, ProfileEntry>& entries();
  [[nodiscard]] const std::map<ConvolutionCall, std::int64_t>& convolutions() const { return convolutions_; }

  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] std::string description() const override { return inner_.description(); }
  [[nodiscard]] DType compute_type() const override { return inner_.compute_type(); }

  MemoryPool& pool() override { return inner_.pool(); }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& source, void* destination) override { inner_.copy_to_host(source, destination); }
  void zero(const Tensor& x) override;
  void synchronize() override { inner_.synchronize(); }
  std::unique_ptr<TimeMark> mark() override { return inner_.mark(); }
  bool all_finite(const Tensor& x) override { return inner_.all_finite(x); }

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override {
    return inner_.conv2d_layout(spec, input);
  }
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override {
    return inner_.linear_layout(in_features, out_features, batch);
  }
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override { return inner_.vector_layout(count); }
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override {
    inner_.import_weight(layout, host, native);
  }
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override {
    inner_.export_weight(layout, native, host);
  }
  [[nodiscard]] bool weights_mirror_master() const override { return inner_.weights_mirror_master(); }
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
  struct Timed {
    ProfileEntry* entry;
    std::unique_ptr<TimeMark> before, after;
  };

  template <class Call>
  void timed(const char* operation, const std::string& detail, const OperationCost& cost, const Call& call);
  void count(ConvolutionCall::Direction direction, const Conv2dSpec& spec, const Shape& input, bool bias);

  Backend& inner_;
  std::map<ProfileKey, ProfileEntry> entries_;
  std::map<ConvolutionCall, std::int64_t> convolutions_;
  std::vector<Timed> under_way_;
};

}  // namespace convoy
