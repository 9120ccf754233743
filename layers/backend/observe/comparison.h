// SPDX-License-Identifier: Apache-2.0
//
// One operation on both backends. It visits the operands twice: first as itself, to copy what is read to the reference
// and to fill outputs with NaN; then by Side, which turns the operands into those of one backend. Tensors on the same
// memory have one mirror, so what works in place does so on both sides. A weight has its own layout in each backend and
// is converted through host memory. Private to layers/backend/observe.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/backend/observe/compare_backend.h"

namespace convoy {

/// What CompareBackend hands out as the layout of a weight: the subject's, with the reference's beside it.
class PairedLayout final : public WeightLayout {
 public:
  PairedLayout(std::unique_ptr<WeightLayout> subject_layout, std::unique_ptr<WeightLayout> reference_layout)
      : WeightLayout(subject_layout->shape(), subject_layout->elements()),
        subject(std::move(subject_layout)),
        reference(std::move(reference_layout)) {}
  std::unique_ptr<WeightLayout> subject, reference;
};

/// The pair that this layout is; throws an Error when another backend made it.
const PairedLayout& paired_layout(const WeightLayout& layout);

/// Values of `native` in row-major order; throws an Error that begins with `what` when its padding is not zero.
std::vector<float> exported_weight(Backend& backend, const WeightLayout& layout, const Tensor& native,
                                   const std::string& what);

class Comparison : public OperandVisitor {
 public:
  /// operation: its name; what: its name and shapes, for the error.
  Comparison(CompareBackend& owner, std::string operation, std::string what);

  // As a visitor: takes the operands as they are.
  const Tensor& in(const Tensor& x);
  const Weight& in(const Weight& w);
  const Weight* in(const Weight* w) { return w != nullptr ? &in(*w) : nullptr; }
  const Tensor& out(const char* name, const Tensor& y);
  const Tensor& in_out(const char* name, const Tensor& y);
  const Tensor& gradient(const char* name, const Tensor& dw, const Weight& w, bool accumulate);
  const Tensor& gradient(const char* name, const Tensor& dbias, bool accumulate);

  /// A visitor that gives the operands of one backend.
  class Side : public OperandVisitor {
   public:
    Side(const Comparison& all, bool reference) : all_(all), reference_(reference) {}
    const Tensor& in(const Tensor& x) const { return x && reference_ ? all_.find(x)->reference : x; }
    const Weight& in(const Weight& w) const;
    const Weight* in(const Weight* w) const { return w != nullptr ? &in(*w) : nullptr; }
    const Tensor& out(const char* /*name*/, const Tensor& y) const { return in(y); }
    const Tensor& in_out(const char* /*name*/, const Tensor& y) const { return in(y); }
    const Tensor& gradient(const char* /*name*/, const Tensor& dw, const Weight& /*w*/, bool /*accumulate*/) const {
      return in(dw);
    }
    const Tensor& gradient(const char* /*name*/, const Tensor& dbias, bool /*accumulate*/) const { return in(dbias); }
    /// A mask that one backend makes means nothing to the other: the output stands for it.
    Tensor* mask(Tensor* /*made*/) const { return nullptr; }

   private:
    const Comparison& all_;
    bool reference_;
  };
  [[nodiscard]] Side subject() const { return {*this, false}; }
  [[nodiscard]] Side reference() const { return {*this, true}; }

  /// After both have run: throws an Error if an output differs.
  void compare();

 private:
  struct Mirror {
    const void* data;
    std::size_t bytes;
    Tensor reference;
  };
  struct WeightMirror {
    const Weight* original;
    Weight subject, reference;
  };
  struct Output {
    const char* name;
    Tensor subject, reference;
    const PairedLayout* layout;  // null: an ordinary tensor
  };

  [[nodiscard]] const Mirror* find(const Tensor& x) const;
  void mirror(const Tensor& x, const Tensor& reference);
  void compare(const Output& output, CompareBackend::Seen& seen);

  CompareBackend& owner_;
  std::string operation_, what_;
  std::deque<Mirror> mirrors_;  // operands refer to elements of these two
  std::deque<WeightMirror> weights_;
  std::vector<Output> outputs_;
};

}  // namespace convoy
