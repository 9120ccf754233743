// SPDX-License-Identifier: Apache-2.0
//
// The three directions of a convolution or linear layer at one input shape, each by its own way: oneDNN's primitive for
// it, or one of those that conv2d.cpp chooses from. They are built on first use and kept, since building takes
// milliseconds. Private to layers/backend/onednn.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <utility>

#include "layers/backend/backend.h"
#include "layers/backend/onednn/primitive.h"

namespace convoy {

/// A way to compute y from x, or dx from dy.
class Direction {
 public:
  /// weights: the format in which run() reads the weight.
  explicit Direction(const dnnl::memory::desc& weights) : weights_(weights) {}
  virtual ~Direction() = default;
  [[nodiscard]] const dnnl::memory::desc& weights() const { return weights_; }
  /// Sets `to`; bias [out], float32, is null where there is none.
  virtual void run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
                   const Tensor& to) = 0;

 private:
  dnnl::memory::desc weights_;
};

/// The one that oneDNN has.
class PrimitiveDirection final : public Direction {
 public:
  /// from, to: which arguments of the primitive these are.
  PrimitiveDirection(BoundPrimitive bound, const dnnl::memory::desc& weights, int from, int to)
      : Direction(weights), bound_(std::move(bound)), from_(from), to_(to) {}
  void run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
           const Tensor& to) override;

 private:
  BoundPrimitive bound_;
  int from_, to_;
};

/// A way to compute the weight gradient.
class WeightGradient {
 public:
  /// format: in which run() writes dw.
  explicit WeightGradient(const dnnl::memory::desc& format) : format_(format) {}
  virtual ~WeightGradient() = default;
  [[nodiscard]] const dnnl::memory::desc& format() const { return format_; }
  /// Sets dw, float32, and dbias [out] unless it is null.
  virtual void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
                   const Tensor& dbias) = 0;

 private:
  dnnl::memory::desc format_;
};

/// The one that oneDNN has.
class PrimitiveGradient final : public WeightGradient {
 public:
  PrimitiveGradient(BoundPrimitive bound, const dnnl::memory::desc& format)
      : WeightGradient(format), bound_(std::move(bound)) {}
  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override;

 private:
  BoundPrimitive bound_;
};

struct WeightedPlan {
  std::unique_ptr<Direction> forward, backward_input;
  std::unique_ptr<WeightGradient> backward_weight;
};

}  // namespace convoy
