// SPDX-License-Identifier: Apache-2.0
//
// The base of backends that watch another one: profile, comparison, fault injection. Everything goes to the inner
// backend. Each operation passes through one function template of the derived class, `observe(op)`, which sees the
// operands by op.visit() and carries the operation out by inner().run(op).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "layers/backend/backend.h"

namespace convoy {

template <class Derived>
class ObservingBackend : public Backend {
 public:
  /// `inner` outlives this.
  explicit ObservingBackend(Backend& inner) : inner_(inner) {}
  [[nodiscard]] Backend& inner() { return inner_; }
  [[nodiscard]] const Backend& inner() const { return inner_; }

#define CONVOY_OBSERVE(Operation) \
  void run(const ops::Operation& op) override { pass(op); }
  CONVOY_OPERATIONS(CONVOY_OBSERVE)
#undef CONVOY_OBSERVE

  [[nodiscard]] bool recomputes_relu_masks() const override { return inner_.recomputes_relu_masks(); }
  [[nodiscard]] bool fuses_batch_norms() const override { return inner_.fuses_batch_norms(); }
  [[nodiscard]] bool fuses(const ops::Conv2dForward& op) const override { return inner_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardInput& op) const override { return inner_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardWeight& op) const override { return inner_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormApply& op) const override { return inner_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardReduce& op) const override { return inner_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardApply& op) const override { return inner_.fuses(op); }
  void finish_gradients() override { inner_.finish_gradients(); }
  [[nodiscard]] bool has_unfinished_gradients() const override { return inner_.has_unfinished_gradients(); }

  [[nodiscard]] std::string name() const override { return inner_.name(); }
  [[nodiscard]] std::string description() const override { return inner_.description(); }
  [[nodiscard]] DType compute_type() const override { return inner_.compute_type(); }
  MemoryPool& pool() override { return inner_.pool(); }
  void copy_from_host(const void* source, const Tensor& destination) override {
    inner_.copy_from_host(source, destination);
  }
  void copy_to_host(const Tensor& source, void* destination) override { inner_.copy_to_host(source, destination); }
  void zero(const Tensor& x) override { inner_.zero(x); }
  void synchronize() override { inner_.synchronize(); }
  std::unique_ptr<TimeMark> mark() override { return inner_.mark(); }
  bool all_finite(const Tensor& x) override { return inner_.all_finite(x); }
  [[nodiscard]] std::uint64_t checksum(const Tensor& x, std::int64_t first = 0) override {
    return inner_.checksum(x, first);
  }

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override {
    return inner_.conv2d_layout(spec, input);
  }
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in, std::int64_t out, std::int64_t batch) override {
    return inner_.linear_layout(in, out, batch);
  }
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override { return inner_.vector_layout(count); }
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override {
    inner_.import_weight(layout, host, native);
  }
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override {
    inner_.export_weight(layout, native, host);
  }
  [[nodiscard]] bool weights_mirror_master() const override { return inner_.weights_mirror_master(); }
  void refresh_compute(Weight& weight) override { inner_.refresh_compute(weight); }

 private:
  // Parts that the inner backend does not fuse are observed each by itself.
  template <class Operation>
  void pass(const Operation& op) {
    if constexpr (requires { inner_.fuses(op); }) {
      if (!inner_.fuses(op) && this->run_apart(op)) return;
    }
    static_cast<Derived&>(*this).observe(op);
  }

  Backend& inner_;
};

/// A visitor of operands that changes nothing. Others derive from it and hide what they are about.
struct OperandVisitor {
  std::tuple<std::optional<ops::BatchNormApply>, std::optional<ops::BatchNormStatistics>,
             std::optional<ops::BatchNormBackwardReduce>, std::optional<ops::MaxPoolForward>,
             std::optional<ops::MaxPoolBackward>>
      parts;  ///< ops::visit_part()
  const Tensor& in(const Tensor& x) { return x; }
  const Weight& in(const Weight& w) { return w; }
  const Weight* in(const Weight* w) { return w; }
  const Tensor& out(const char* /*name*/, const Tensor& y) { return y; }
  const Tensor& in_out(const char* /*name*/, const Tensor& y) { return y; }
  /// The gradient of a weight, in its layout, or of a bias.
  const Tensor& gradient(const char* /*name*/, const Tensor& dw, const Weight& /*w*/, bool /*accumulate*/) {
    return dw;
  }
  const Tensor& gradient(const char* /*name*/, const Tensor& dbias, bool /*accumulate*/) { return dbias; }
  Tensor* mask(Tensor* made) { return made; }
};

}  // namespace convoy
