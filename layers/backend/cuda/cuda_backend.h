// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend: convolutions by cuDNN, matrix products by cuBLASLt, the memory-bound rest by own kernels, each in
// one pass over channels-last data with vector loads. One file per operation group beside this one, named as those of
// the CPU backend. Calls only put work on one stream; the host waits in copy_to_host() and synchronize() alone.
// Invariant: with `deterministic`, equal inputs and shapes give equal bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/fusion_rules.h"

namespace convoy {

struct CudaState;
class Uploads;

struct CudaOptions {
  int device = 0;               ///< among those visible to this process
  DType compute = DType::kF32;  ///< kF32, kBF16 or kF16
  bool tf32 = false;            ///< with kF32: tensor cores, inputs rounded to 10 bits of mantissa
  bool deterministic = false;
  std::string plan_folder;  ///< plans chosen by timing are kept there for later processes; empty: nowhere
  bool time_plans = true;   ///< of convolutions, for the quickest; else the first one is taken; never if deterministic
};

/// A weight gradient in the compute type that is still to be cast into the buffer of gradients.
struct PendingGradient {
  Tensor gradient, dw;
};

class CudaBackend final : public Backend {
 public:
  /// Throws a usage Error when there is no such GPU, or it has no support for the compute type.
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  /// "CUDA 13.0, cuDNN 9.19, cuBLAS 13.0": what runs, not what was built for.
  static std::string library_description();

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType compute_type() const override { return options_.compute; }
  /// For NcclCommunicator: the stream that tensors are made on, and the state it belongs to.
  [[nodiscard]] CudaState& state() { return *state_; }

  MemoryPool& pool() override { return pool_; }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& source, void* destination) override;
  void zero(const Tensor& x) override;
  [[nodiscard]] Tensor zeros(const Shape& shape, DType dtype) override;
  void synchronize() override;
  [[nodiscard]] std::unique_ptr<TimeMark> mark() override;
  std::unique_ptr<RecordedWork> record(const std::function<void()>& body) override;
  bool all_finite(const Tensor& x) override;

  [[nodiscard]] std::int64_t input_channels(const Conv2dSpec& spec) const override;
  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  [[nodiscard]] bool weights_mirror_master() const override { return true; }
  void refresh_compute(Weight& weight) override;

  [[nodiscard]] bool recomputes_relu_masks() const override { return true; }
  [[nodiscard]] bool fuses_batch_norms() const override { return rules_.fuses_batch_norms(); }
  [[nodiscard]] bool fuses(const ops::Conv2dForward& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardInput& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::Conv2dBackwardWeight& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormApply& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardReduce& op) const override { return rules_.fuses(op); }
  [[nodiscard]] bool fuses(const ops::BatchNormBackwardApply& op) const override { return rules_.fuses(op); }
  void finish_gradients() override;
  [[nodiscard]] bool has_unfinished_gradients() const override { return !pending_gradients_.empty(); }

  CONVOY_OPERATIONS(CONVOY_DECLARE_RUN)

 private:
  class DeviceMemory final : public RawMemory {
   public:
    void* allocate(std::size_t bytes) override;
    void release(void* data) noexcept override;
  };

  /// Segments on the device, cut into pieces of equal work (segments.cuh).
  struct SegmentTable {
    std::vector<Segment> segments;
    std::int64_t pieces = 0;
    Tensor piece_rows, segment_rows;
  };
  /// Made by the first operation that has these segments, and kept: recorded work points at it.
  const SegmentTable& segment_table(std::span<const Segment> segments);

  void max_pool_normalized(const ops::BatchNormApply& op);
  /// With their parts in one plan; false, and nothing done, where cuDNN has none.
  bool run_fused(const ops::Conv2dForward& op);
  bool run_fused(const ops::Conv2dBackwardInput& op);
  [[nodiscard]] Tensor aligned_pivot(const Tensor& pivot, std::int64_t channels);
  /// Sets result, in the compute type; false, and nothing done, where cuDNN has no plan with the prologue.
  bool run_weight_gradient(const ops::Conv2dBackwardWeight& op, const Tensor& result);

  /// Throws when work is being recorded, which `operation` cannot be part of.
  void require_not_recording(const char* operation) const;

  CudaOptions options_;
  FusionRules rules_;
  std::unique_ptr<CudaState> state_;  // first: memory is asked for and given back while the device is there
  DeviceMemory memory_;
  MemoryPool pool_{memory_};
  std::unique_ptr<Uploads> uploads_;  // these two hold pooled memory
  std::vector<SegmentTable> segment_tables_;
  std::vector<PendingGradient> pending_gradients_;  // for finish_gradients()
  Tensor zeros_;                                    // cleared; zeros() hands out what is left of it
  std::int64_t zeros_used_ = 0;                     // bytes
};

}  // namespace convoy
