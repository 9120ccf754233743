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

namespace convoy {

struct CudaState;
class Uploads;

struct CudaOptions {
  int device = 0;               ///< among those visible to this process
  DType compute = DType::kF32;  ///< kF32, kBF16 or kF16
  bool tf32 = false;            ///< with kF32: tensor cores, inputs rounded to 10 bits of mantissa
  bool deterministic = false;
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
  void synchronize() override;
  [[nodiscard]] std::unique_ptr<TimeMark> mark() override;
  std::unique_ptr<RecordedWork> record(const std::function<void()>& body) override;
  bool all_finite(const Tensor& x) override;

  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  [[nodiscard]] bool weights_mirror_master() const override { return true; }
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
  void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& x, const Tensor& dy, const Weight& w,
                              const Tensor& dw, const Tensor& dbias, bool accumulate) override;

  void batch_norm_statistics(const Tensor& x, const Tensor& mean, const Tensor& variance) override;
  void batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& gamma,
                        const Tensor& beta, float epsilon, const Tensor& residual, bool relu, const Tensor& y) override;
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
  class DeviceMemory final : public RawMemory {
   public:
    void* allocate(std::size_t bytes) override;
    void release(void* data) noexcept override;
  };

  /// The segments of one LARS optimizer on the device, cut into pieces of equal work.
  struct LarsTable {
    std::vector<Segment> segments;
    std::int64_t pieces = 0;
    Tensor piece_rows, segment_rows;
  };
  /// Made by the first update that has these segments, and kept: recorded work points at it.
  const LarsTable& lars_table(std::span<const Segment> segments);

  /// Throws when work is being recorded, which `operation` cannot be part of.
  void require_not_recording(const char* operation) const;

  CudaOptions options_;
  std::unique_ptr<CudaState> state_;  // first: memory is asked for and given back while the device is there
  DeviceMemory memory_;
  MemoryPool pool_{memory_};
  std::unique_ptr<Uploads> uploads_;  // these two hold pooled memory
  std::vector<LarsTable> lars_tables_;
};

}  // namespace convoy
