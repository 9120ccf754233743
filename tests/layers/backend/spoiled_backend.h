// SPDX-License-Identifier: Apache-2.0
//
// Fault injection: a backend that damages one element of one output of one operation, always, or flips one bit once,
// also of a weight that the operation reads. Everything else is the inner backend's, whose tensors are in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "layers/backend/observe/observing_backend.h"

namespace convoy {

class SpoiledBackend final : public ObservingBackend<SpoiledBackend> {
 public:
  enum class Damage { kValue, kNan, kUnwritten, kFlip };

  using ObservingBackend::ObservingBackend;

  /// output: its name; empty: the last one. element: in the order of memory.
  void spoil(std::string operation, Damage how, std::int64_t element = 0, std::string output = "") {
    operation_ = std::move(operation);
    output_ = std::move(output);
    damage_ = how;
    element_ = static_cast<std::size_t>(element);
  }

  /// Once: a bit of one element in the call number `call` of that operation, counted from 1 and from now. output
  /// "weight": of the weight that it reads, which keeps it.
  void flip(std::string operation, std::int64_t call, std::int64_t element = 0, std::string output = "") {
    spoil(std::move(operation), Damage::kFlip, element, std::move(output));
    left_ = call;
  }
  /// Whether the bit of flip() has been flipped.
  [[nodiscard]] bool flipped() const { return damage_ == Damage::kFlip && left_ <= 0; }

  [[nodiscard]] std::string name() const override { return "spoiled"; }
  [[nodiscard]] std::string description() const override { return "spoiled " + ObservingBackend::description(); }

  void copy_from_host(const void* source, const Tensor& x) override {
    run_and_damage("copy_from_host", x, [&] { inner().copy_from_host(source, x); });
  }
  void zero(const Tensor& x) override {
    run_and_damage("zero", x, [&] { inner().zero(x); });
  }
  bool all_finite(const Tensor& x) override { return inner().all_finite(x) != (operation_ == "all_finite"); }
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override {
    run_and_damage("import_weight", native, [&] { inner().import_weight(layout, host, native); });
  }

  template <class Operation>
  void observe(const Operation& op) {
    Outputs outputs;
    outputs.wanted = output_;
    static_cast<void>(op.visit(outputs));
    if (damage_ == Damage::kFlip) {
      flip_in(Operation::kName, outputs.found, [&] { inner().run(op); });
    } else {
      run_and_damage(Operation::kName, outputs.found, [&] { inner().run(op); });
    }
  }

 private:
  // The output of the wanted name, else the last one that is there.
  struct Outputs : OperandVisitor {
    std::string wanted;
    Tensor found;
    const Tensor& take(const char* name, const Tensor& y) {
      if (y && (wanted.empty() || wanted == name)) found = y;
      return y;
    }
    const Weight& in(const Weight& w) {
      if (wanted == "weight" && !found) found = w.master;  // the bias comes after it
      return w;
    }
    const Weight* in(const Weight* w) { return w != nullptr ? &in(*w) : nullptr; }
    const Tensor& in(const Tensor& x) { return x; }
    const Tensor& out(const char* name, const Tensor& y) { return take(name, y); }
    const Tensor& in_out(const char* name, const Tensor& y) { return take(name, y); }
    const Tensor& gradient(const char* name, const Tensor& dw, const Weight& /*w*/, bool /*accumulate*/) {
      return take(name, dw);
    }
    const Tensor& gradient(const char* name, const Tensor& dbias, bool /*accumulate*/) { return take(name, dbias); }
  };

  template <class Call>
  void flip_in(const char* operation, const Tensor& x, const Call& call) {
    const bool now = operation_ == operation && --left_ == 0;
    const auto flip_bit = [&] {
      static_cast<std::uint8_t*>(x.raw())[element_ * dtype_size(x.dtype()) + 1] ^= 0x10;  // of a float: in the mantissa
    };
    if (now && output_ == "weight") flip_bit();
    call();
    if (now && output_ != "weight") flip_bit();
  }

  // call() writes to `out`, which is then damaged if this is the operation to spoil.
  template <class Call>
  void run_and_damage(const char* operation, const Tensor& out, const Call& call) {
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

  std::string operation_, output_;
  Damage damage_ = Damage::kValue;
  std::size_t element_ = 0;
  std::int64_t left_ = 0;  // calls up to the flip
};

}  // namespace convoy
