// SPDX-License-Identifier: Apache-2.0
//
// A backend that checks whether operations propagate NaN as PyTorch's do: before each operation it runs a copy of it
// for each operand that is read or added to, with NaN in every element of that operand, and expects a NaN in an output.
// Outputs of the copies are tensors of their own. Masks are left out: PyTorch's threshold_backward passes a gradient on
// where the output is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "layers/backend/observe/observing_backend.h"

namespace convoy {

class NanBackend final : public ObservingBackend<NanBackend> {
 public:
  using ObservingBackend::ObservingBackend;

  /// "operation, operand N" of each operand whose NaN no output had.
  [[nodiscard]] const std::set<std::string>& swallowed() const { return swallowed_; }
  /// The names of the operations that were checked.
  [[nodiscard]] const std::set<std::string>& checked() const { return checked_; }

  template <class Operation>
  void observe(const Operation& op) {
    for (int operand = 0; check_operand(op, operand); ++operand) {
    }
    inner().run(op);
  }

 private:
  struct Poison : OperandVisitor {
    NanBackend* owner = nullptr;
    int wanted = 0, seen = 0;
    std::vector<const void*> left_out;  // masks, and what they are computed from
    bool found = false;
    std::vector<Tensor> outputs;
    Tensor input, made_mask;
    Weight weight;

    bool is_wanted() {
      if (seen++ != wanted) return false;
      found = true;
      return true;
    }
    const Tensor& in(const Tensor& x) {
      const bool floats = x && x.dtype() != DType::kU8 && x.dtype() != DType::kI64;
      if (!floats || x.size() == 0 || std::find(left_out.begin(), left_out.end(), x.raw()) != left_out.end() ||
          !is_wanted())
        return x;
      return input = owner->of_nan(x.shape(), x.dtype());
    }
    bool only_layouts = false;  // the values of weights are not read
    const Weight& in(const Weight& w) {
      if (only_layouts || !is_wanted()) return w;
      weight.layout = w.layout;
      weight.master = owner->of_nan(w.master.shape(), w.master.dtype());
      owner->inner().refresh_compute(weight);
      return weight;
    }
    const Weight* in(const Weight* w) { return w == nullptr ? w : &in(*w); }
    const Tensor& keep(const Tensor& y, bool read) {
      if (!y) return y;
      if (read && y.size() > 0 && y.dtype() != DType::kU8 && is_wanted()) {
        outputs.push_back(owner->of_nan(y.shape(), y.dtype()));
        return outputs.back();
      }
      outputs.push_back(owner->inner().tensor(y.shape(), y.dtype()));
      if (read && y.size() > 0) {
        std::vector<std::byte> bytes(y.bytes());
        owner->inner().copy_to_host(y, bytes.data());
        owner->inner().copy_from_host(bytes.data(), outputs.back());
      }
      return outputs.back();
    }
    const Tensor& out(const char* /*name*/, const Tensor& y) { return keep(y, false); }
    const Tensor& in_out(const char* /*name*/, const Tensor& y) { return keep(y, true); }
    const Tensor& gradient(const char* /*name*/, const Tensor& dw, const Weight& /*w*/, bool accumulate) {
      return keep(dw, accumulate);
    }
    const Tensor& gradient(const char* /*name*/, const Tensor& dbias, bool accumulate) {
      return keep(dbias, accumulate);
    }
    Tensor* mask(Tensor* made) { return made == nullptr ? made : &made_mask; }
  };

  template <class Operation>
  static std::vector<const void*> masks_of(const Operation& op) {
    if constexpr (std::is_same_v<Operation, ops::ReluBackward>) {
      return {op.y.raw()};
    } else if constexpr (std::is_same_v<Operation, ops::BatchNormBackwardReduce>) {
      return {op.mask.raw(), op.gamma.raw(), op.beta.raw()};
    } else if constexpr (std::is_same_v<Operation, ops::BatchNormBackwardApply>) {
      return {op.mask.raw(), op.beta.raw()};
    } else if constexpr (requires { op.mask.raw(); }) {
      return {op.mask.raw()};
    } else {
      return {};
    }
  }

  // Whether the operation has that operand.
  template <class Operation>
  bool check_operand(const Operation& op, int operand) {
    Poison poison;
    poison.owner = this;
    poison.wanted = operand;
    poison.left_out = masks_of(op);
    poison.only_layouts = requires { op.dw; };
    poison.outputs.reserve(8);
    const Operation copy = op.visit(poison);
    if (!poison.found) return false;
    inner().run(copy);
    inner().finish_gradients();
    checked_.insert(Operation::kName);
    bool propagated = false;
    for (const Tensor& output : poison.outputs) propagated = propagated || has_nan(output);
    if (!propagated) swallowed_.insert(std::string(Operation::kName) + ", operand " + std::to_string(operand));
    return true;
  }

  Tensor of_nan(const Shape& shape, DType dtype) {
    const auto count = static_cast<std::size_t>(shape.size());
    if (dtype == DType::kF64) {
      const std::vector<double> host(count, std::numeric_limits<double>::quiet_NaN());
      Tensor doubles = inner().tensor(shape, dtype);
      inner().copy_from_host(host.data(), doubles);
      return doubles;
    }
    const std::vector<float> host(count, std::numeric_limits<float>::quiet_NaN());
    const Tensor floats = inner().tensor(shape, DType::kF32);
    inner().copy_from_host(host.data(), floats);
    if (dtype == DType::kF32) return floats;
    Tensor result = inner().tensor(shape, dtype);
    inner().run(ops::Cast{floats, result});
    return result;
  }

  bool has_nan(const Tensor& x) {
    const auto any = [&](auto number, const Tensor& values) {
      std::vector<decltype(number)> host(static_cast<std::size_t>(values.size()));
      inner().copy_to_host(values, host.data());
      return std::any_of(host.begin(), host.end(), [](auto value) { return std::isnan(value); });
    };
    if (x.size() == 0 || x.dtype() == DType::kU8 || x.dtype() == DType::kI64) return false;
    if (x.dtype() == DType::kF64) return any(0.0, x);
    if (x.dtype() == DType::kF32) return any(0.0F, x);
    const Tensor floats = inner().tensor(x.shape(), DType::kF32);
    inner().run(ops::Cast{x, floats});
    return any(0.0F, floats);
  }

  std::set<std::string> swallowed_, checked_;
};

}  // namespace convoy
