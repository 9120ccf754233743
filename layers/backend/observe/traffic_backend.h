// SPDX-License-Identifier: Apache-2.0
//
// A backend that carries nothing out and counts what the CUDA backend would: the bytes that each operation moves
// between GPU and memory, and the nodes of the recorded step, by phase, unit of the model and kind of operation. Its
// tensors are addresses without memory. Every operand of an operation counts once in each role; what an operation and
// its fused parts (fusion_rules.h) have just computed is not read again, what they add up in caches is left out.
// Invariant: a count depends on shapes and types alone, so it is the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/fusion_rules.h"

namespace convoy {

enum class TrafficKind {
  kProducts,    ///< convolutions and linear layers: their own operands
  kStatistics,  ///< of batch norms
  kApply,       ///< normalisation, ReLU, the sum of a block's two paths
  kBackwardReduce,
  kBackwardApply,
  kJoins,          ///< sums of gradients from two paths
  kRest,           ///< input, pooling, loss, ...
  kGradientCasts,  ///< weight gradients on their way from the compute type to float32
};

struct Moved {
  double bytes = 0;
  /// The operands of convolutions and linear layers alone, in the compute type, without padding.
  double least = 0;
  std::int64_t nodes = 0;
  Moved& operator+=(const Moved& other) {
    bytes += other.bytes;
    least += other.least;
    nodes += other.nodes;
    return *this;
  }
};

struct TrafficKey {
  std::string phase, unit;  ///< ProfileRange's outermost and innermost name
  TrafficKind kind = TrafficKind::kRest;
  bool operator<(const TrafficKey& other) const {
    return std::tie(phase, unit, kind) < std::tie(other.phase, other.unit, other.kind);
  }
};

/// The matrix product behind a convolution (as implicit GEMM) or a linear layer: rows x depth times depth x columns,
/// `groups` of them.
struct GemmShape {
  double rows = 0, columns = 0, depth = 0, groups = 1;
  bool weight_gradient = false;  ///< its depth runs over the samples, its rows over the inputs of an output
};

struct CountedOperation {
  TrafficKey key;
  Moved moved;     ///< without nodes: a part that is fused with the operation before or after it
  GemmShape gemm;  ///< of convolutions and linear layers; zeros for others
};

class TrafficBackend final : public Backend {
 public:
  explicit TrafficBackend(const FusionRules& rules) : rules_(rules) {}

  /// What was counted since the last restart(), in the order of the step, and its sums.
  [[nodiscard]] const std::vector<CountedOperation>& operations() const { return operations_; }
  [[nodiscard]] std::map<TrafficKey, Moved> traffic() const;
  /// Forgets what was counted so far.
  void restart();

  /// "CUDA backend, bfloat16, fused"
  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType compute_type() const override { return rules_.compute; }

  MemoryPool& pool() override { return pool_; }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& /*source*/, void* /*destination*/) override {}
  void zero(const Tensor& x) override;
  [[nodiscard]] Tensor zeros(const Shape& shape, DType dtype) override;
  [[nodiscard]] bool recomputes_relu_masks() const override { return true; }
  [[nodiscard]] bool fuses_batch_norms() const override { return rules_.fuses_batch_norms(); }
  [[nodiscard]] bool fuses(const ops::Conv2dForward& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardInput& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardWeight& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormApply& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardReduce& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardApply& op) const override { return rules_.fuses(op); }
  void finish_gradients() override;
  bool all_finite(const Tensor& x) override;
  [[nodiscard]] std::uint64_t checksum(const Tensor& /*x*/, std::int64_t /*first*/) override { return 0; }

  [[nodiscard]] std::int64_t input_channels(const Conv2dSpec& spec) const override;
  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& /*layout*/, const float* /*host*/, const Tensor& /*native*/) override {}
  void export_weight(const WeightLayout& /*layout*/, const Tensor& /*native*/, float* /*host*/) override {}
  [[nodiscard]] bool weights_mirror_master() const override { return true; }
  void refresh_compute(Weight& weight) override;

  CONVOY_OPERATIONS(CONVOY_DECLARE_RUN)

 private:
  class Addresses final : public RawMemory {
   public:
    void* allocate(std::size_t bytes) override;
    void release(void* /*data*/) noexcept override {}

   private:
    std::uintptr_t next_ = 4096;
  };

  template <class Operation>
  void count(const Operation& op);
  void count(const ops::LinearForward& op);
  void count(const ops::LinearBackwardWeight& op);
  void count(const ops::Conv2dForward& op);
  void count(const ops::Conv2dBackwardInput& op);
  void count(const ops::Conv2dBackwardWeight& op);
  void count(const ops::BatchNormApply& op);
  void add(TrafficKind kind, const Moved& moved, const GemmShape& gemm = {});

  FusionRules rules_;
  Addresses memory_;
  MemoryPool pool_{memory_};
  std::vector<CountedOperation> operations_;
  std::vector<std::int64_t> pending_;  // elements of weight gradients that finish_gradients() converts
  std::int64_t zeroed_ = 0;            // bytes that are left of the last clearing
};

}  // namespace convoy
