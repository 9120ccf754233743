// SPDX-License-Identifier: Apache-2.0
//
// One operation on both backends. An operation of CompareBackend says what it reads, sets and adds to, reads first;
// run() then calls it on the subject with the caller's arguments and on the reference with their mirrors, and compares
// the outputs. Tensors on the same memory have one mirror, so what works in place does so on both sides. A weight lies
// in each backend's own layout and is converted through host memory. Private to layers/backend/compare.
#pragma once

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

class Comparison {
 public:
  /// Turns the arguments that the caller gave into those of one side.
  class Arguments {
   public:
    Tensor operator()(const Tensor& x) const;
    const Weight& operator()(const Weight& w) const;
    const Weight* operator()(const Weight* w) const { return w != nullptr ? &(*this)(*w) : nullptr; }

   private:
    friend class Comparison;
    Arguments(const Comparison& all, bool reference) : all_(all), reference_(reference) {}
    const Comparison& all_;
    bool reference_;
  };

  /// operation: the function's name; on: its shapes, for the error.
  Comparison(CompareBackend& owner, std::string operation, const std::string& on);

  /// Inputs: tensors, perhaps empty, and weights, perhaps null.
  template <class... Inputs>
  Comparison& reads(const Inputs&... inputs) {
    (read(inputs), ...);
    return *this;
  }
  /// An output, perhaps empty, that the operation sets, or adds to.
  Comparison& sets(const char* name, const Tensor& y);
  Comparison& adds(const char* name, const Tensor& y);
  /// Either: the gradient of `w` in its native layout, and that of a bias.
  Comparison& gradients(const Weight& w, const Tensor& dw, const Tensor& dbias, bool accumulate);

  /// call(backend, arguments), for each side.
  template <class Call>
  void run(const Call& call) {
    call(owner_.subject_, Arguments(*this, false));
    call(owner_.reference_, Arguments(*this, true));
    compare();
  }

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

  void read(const Tensor& x);
  void read(const Weight& w);
  void read(const Weight* w);
  [[nodiscard]] const Mirror* find(const Tensor& x) const;
  const Tensor& mirror(const Tensor& x, const Tensor& reference);
  void compare();
  void compare(const Output& output, CompareBackend::Seen& seen);

  CompareBackend& owner_;
  std::string operation_, what_;
  std::vector<Mirror> mirrors_;
  std::vector<WeightMirror> weights_;
  std::vector<Output> outputs_;
};

}  // namespace convoy
