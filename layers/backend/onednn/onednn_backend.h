// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: convolutions and matrix products by oneDNN (2 and 3), the rest by own kernels over OpenMP threads.
// Memory-bound kernels work channels-last, so that every per-channel loop is contiguous. One file per operation
// group beside this one. oneDNN's types stay behind OnednnState (onednn_state.h).
// Invariant: equal inputs, shapes and thread count give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layers/backend/backend.h"
#include "layers/backend/onednn/cpu_rules.h"

namespace convoy {

struct OnednnState;

class OnednnBackend final : public Backend {
 public:
  /// threads: OpenMP threads of this process's kernels, at least 1. compute: kF32 or kBF16, of activations.
  /// rules: which algorithms convolutions use.
  OnednnBackend(int threads, DType compute, const CpuRules& rules = this_cpu().rules);
  ~OnednnBackend() override;

  /// Whether products of bfloat16 activations are taken in bfloat16, and not in float32: where that is faster.
  static bool multiplies_bf16();
  /// "oneDNN 2.6.3, AVX2"
  static std::string library_description();

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] std::string description() const override;
  [[nodiscard]] DType compute_type() const override { return compute_; }

  MemoryPool& pool() override { return pool_; }
  void copy_from_host(const void* source, const Tensor& destination) override;
  void copy_to_host(const Tensor& source, void* destination) override;
  void zero(const Tensor& x) override;
  bool all_finite(const Tensor& x) override;
  [[nodiscard]] std::uint64_t checksum(const Tensor& x, std::int64_t first = 0) override;

  [[nodiscard]] std::unique_ptr<Backend> with_direct_convolutions() const override;
  std::unique_ptr<WeightLayout> conv2d_layout(const Conv2dSpec& spec, const Shape& input) override;
  std::unique_ptr<WeightLayout> linear_layout(std::int64_t in_features, std::int64_t out_features,
                                              std::int64_t batch) override;
  std::unique_ptr<WeightLayout> vector_layout(std::int64_t count) override;
  void import_weight(const WeightLayout& layout, const float* host, const Tensor& native) override;
  void export_weight(const WeightLayout& layout, const Tensor& native, float* host) override;
  void refresh_compute(Weight& weight) override;

  CONVOY_OPERATIONS(CONVOY_DECLARE_RUN)

 private:
  /// Host memory for per-thread partial sums: at least `count` doubles, kept between calls.
  double* scratch(std::size_t count);
  void set_coefficients(const ops::BatchNormStatistics& op);
  void normalize(const ops::NormalizeImages& op);
  void normalize_padded(const ops::NormalizeImages& op);
  void run_with_residual(const ops::Conv2dBackwardInput& op);

  class HostMemory final : public RawMemory {
   public:
    HostMemory();
    ~HostMemory() override;
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    void* allocate(std::size_t bytes) override;
    void release(void* data) noexcept override;

   private:
    bool reserves_;                          // made in a rehearsal
    std::map<void*, std::size_t> reserved_;  // blocks that are no memory: bytes of address space, or 0
    std::uintptr_t next_address_ = 4096;
  };

  int threads_;
  DType compute_;
  HostMemory memory_;
  MemoryPool pool_{memory_};
  std::vector<double> scratch_;
  std::unique_ptr<OnednnState> state_;  // last: its cached primitives may hold pooled memory
};

}  // namespace convoy
