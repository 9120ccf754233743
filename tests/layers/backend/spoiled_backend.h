// SPDX-License-Identifier: Apache-2.0
//
// A backend with one wrong operation: everything goes to another backend in host memory, and one element of that
// operation's output is damaged.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "layers/backend/backend.h"

namespace convoy {

class SpoiledBackend final : public Backend {
 public:
  enum class Damage { kValue, kNan, kUnwritten };

  explicit SpoiledBackend(Backend& good) : good_(good) {}
  /// element: in the order of memory.
  void spoil(std::string operation, Damage how, std::int64_t element = 0) {
    operation_ = std::move(operation);
    damage_ = how;
    element_ = static_cast<std::size_t>(element);
  }

  [[nodiscard]] std::string name() const override { return "spoiled"; }
  [[nodiscard]] std::string description() const override { return "spoiled " + good_.description(); }
  [[nodiscard]] DType compute_type() const override { return good_.compute_type(); }
  MemoryPool& pool() override { return good_.pool(); }

  void copy_from_host(const void* source, const Tensor& x) override {
    run("copy_from_host", x, [&] { good_.copy_from_host(source, x); });
  }
  void copy_to_host(const Tensor& x, void* destination) override { good_.copy_to_host(x, destination); }
  void zero(const Tensor& x) override {
    run("zero", x, [&] { good_.zero(x); });
  }
  bool all_finite(const Tensor& x) override { return good_.all_finite(x) != (operation_ == "all_finite"); }

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override {
    return good_.conv2d_layout(spec, input);
  }
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in, std::int64_t out, std::int64_t batch) override {
    return good_.linear_layout(in, out, batch);
  }
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override { return good_.vector_layout(count); }
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override {
    run("import_weight", native, [&] { good_.import_weight(layout, host, native); });
  }
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override {
    good_.export_weight(layout, native, host);
  }
  [[nodiscard]] bool weights_mirror_master() const override { return good_.weights_mirror_master(); }
  void refresh_compute(Weight& weight) override { good_.refresh_compute(weight); }

  void normalize_images(const Tensor& x, const Tensor& mean, const Tensor& std, const Tensor& y) override {
    run("normalize_images", y, [&] { good_.normalize_images(x, mean, std, y); });
  }
  void cast(const Tensor& x, const Tensor& y) override {
    run("cast", y, [&] { good_.cast(x, y); });
  }
  void flatten(const Tensor& x, const Tensor& y) override {
    run("flatten", y, [&] { good_.flatten(x, y); });
  }
  void unflatten(const Tensor& dy, const Tensor& dx) override {
    run("unflatten", dx, [&] { good_.unflatten(dy, dx); });
  }

  void linear_forward(const Tensor& x, const Weight& w, const Weight* bias, bool relu, const Tensor& y) override {
    run("linear_forward", y, [&] { good_.linear_forward(x, w, bias, relu, y); });
  }
  void linear_backward_input(const Tensor& dy, const Weight& w, const Tensor& dx) override {
    run("linear_backward_input", dx, [&] { good_.linear_backward_input(dy, w, dx); });
  }
  void linear_backward_weight(const Tensor& x, const Tensor& dy, const Weight& w, const Tensor& dw, const Tensor& dbias,
                              bool accumulate) override {
    run("linear_backward_weight", dw, [&] { good_.linear_backward_weight(x, dy, w, dw, dbias, accumulate); });
  }
  void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Weight& w, const Weight* bias,
                      const Tensor& y) override {
    run("conv2d_forward", y, [&] { good_.conv2d_forward(spec, x, w, bias, y); });
  }
  void conv2d_backward_input(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) override {
    run("conv2d_backward_input", dx, [&] { good_.conv2d_backward_input(spec, dy, w, dx); });
  }
  void conv2d_backward_input_add(const Conv2dSpec& spec, const Tensor& dy, const Weight& w, const Tensor& dx) override {
    run("conv2d_backward_input_add", dx, [&] { good_.conv2d_backward_input_add(spec, dy, w, dx); });
  }
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                              const Tensor& dw, const Tensor& dbias, bool accumulate) override {
    run("conv2d_backward_weight", dw, [&] { good_.conv2d_backward_weight(spec, x, dy, w, dw, dbias, accumulate); });
  }

  void batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) override {
    run("batch_norm_statistics", variance, [&] { good_.batch_norm_statistics(x, mean, variance); });
  }
  void batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                        const Tensor& beta, float epsilon, const Tensor& residual, bool relu,
                        const Tensor& y) override {
    run("batch_norm_apply", y,
        [&] { good_.batch_norm_apply(x, mean, variance, gamma, beta, epsilon, residual, relu, y); });
  }
  void batch_norm_backward_reduce(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                  const Tensor& variance, float epsilon, const Tensor& dgamma,
                                  const Tensor& dbeta) override {
    run("batch_norm_backward_reduce", dbeta,
        [&] { good_.batch_norm_backward_reduce(dy, x, y, mean, variance, epsilon, dgamma, dbeta); });
  }
  void batch_norm_backward_apply(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& mean,
                                 const Tensor& variance, const Tensor& gamma, const Tensor& dgamma, const Tensor& dbeta,
                                 double count, float epsilon, const Tensor& dx) override {
    run("batch_norm_backward_apply", dx,
        [&] { good_.batch_norm_backward_apply(dy, x, y, mean, variance, gamma, dgamma, dbeta, count, epsilon, dx); });
  }
  void batch_norm_backward_residual(const Tensor& dy, const Tensor& y, const Tensor& dresidual) override {
    run("batch_norm_backward_addend", dresidual, [&] { good_.batch_norm_backward_residual(dy, y, dresidual); });
  }

  void relu_forward(const Tensor& x, const Tensor& y) override {
    run("relu_forward", y, [&] { good_.relu_forward(x, y); });
  }
  void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) override {
    run("relu_backward", dx, [&] { good_.relu_backward(dy, y, dx); });
  }
  void add(const Tensor& x, const Tensor& y) override {
    run("add", y, [&] { good_.add(x, y); });
  }
  void scale(float factor, const Tensor& x) override {
    run("scale", x, [&] { good_.scale(factor, x); });
  }
  void axpy(float scale, const Tensor& x, const Tensor& y) override {
    run("axpy", y, [&] { good_.axpy(scale, x, y); });
  }
  void max_pool_forward(const PoolSpec& spec, const Tensor& x, const Tensor& y, const Tensor& argmax) override {
    run("max_pool_forward", argmax, [&] { good_.max_pool_forward(spec, x, y, argmax); });
  }
  void max_pool_backward(const PoolSpec& spec, const Tensor& dy, const Tensor& argmax, const Tensor& dx) override {
    run("max_pool_backward", dx, [&] { good_.max_pool_backward(spec, dy, argmax, dx); });
  }
  void global_avg_pool_forward(const Tensor& x, const Tensor& y) override {
    run("global_avg_pool_forward", y, [&] { good_.global_avg_pool_forward(x, y); });
  }
  void global_avg_pool_backward(const Tensor& dy, const Tensor& dx) override {
    run("global_avg_pool_backward", dx, [&] { good_.global_avg_pool_backward(dy, dx); });
  }

  void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, float smoothing, float scale,
                             const Tensor& dlogits, const Tensor& totals) override {
    run("softmax_cross_entropy", totals,
        [&] { good_.softmax_cross_entropy(logits, labels, smoothing, scale, dlogits, totals); });
  }
  void mse(const Tensor& predictions, const Tensor& targets, float scale, const Tensor& dpredictions,
           const Tensor& totals) override {
    run("mse", totals, [&] { good_.mse(predictions, targets, scale, dpredictions, totals); });
  }

  void sgd_update(const SgdUpdate& update, const Tensor& values, const Tensor& gradients,
                  const Tensor& momentum) override {
    run("sgd_update", values, [&] { good_.sgd_update(update, values, gradients, momentum); });
  }
  void adamw_update(const AdamwUpdate& update, const Tensor& values, const Tensor& gradients,
                    const Tensor& first_moment, const Tensor& second_moment) override {
    run("adamw_update", first_moment,
        [&] { good_.adamw_update(update, values, gradients, first_moment, second_moment); });
  }
  void lars_update(const LarsUpdate& update, std::span<const Segment> segments, const Tensor& values,
                   const Tensor& gradients, const Tensor& momentum) override {
    run("lars_update", momentum, [&] { good_.lars_update(update, segments, values, gradients, momentum); });
  }

 private:
  // call() writes to `out`, which is then damaged if this is the operation to spoil.
  template <class Call>
  void run(const char* operation, const Tensor& out, const Call& call) {
    if (operation_ != operation) {
      call();
      return;
    }
    const std::size_t size = dtype_size(out.dtype());
    void* const element = static_cast<std::byte*>(out.raw()) + element_ * size;
    std::array<std::byte, 8> before{};
    std::memcpy(before.data(), element, size);
    call();
    if (damage_ == Damage::kUnwritten) {
      std::memcpy(element, before.data(), size);
    } else if (out.dtype() == DType::kF32) {
      damage(static_cast<float*>(element));
    } else if (out.dtype() == DType::kF64) {
      damage(static_cast<double*>(element));
    } else {
      *static_cast<std::uint8_t*>(element) ^= 1;
    }
  }
  template <class T>
  void damage(T* value) const {
    *value = damage_ == Damage::kNan ? std::numeric_limits<T>::quiet_NaN() : *value + 1;
  }

  Backend& good_;
  std::string operation_;
  Damage damage_ = Damage::kValue;
  std::size_t element_ = 0;
};

}  // namespace convoy
