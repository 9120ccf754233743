// SPDX-License-Identifier: Apache-2.0
//
// The GPU side of the CUDA backend: device, streams, library handles, plans. All work runs on one compute stream, in
// the order of the calls; host data arrives through pinned memory on a copy stream that the compute stream waits for.
// Private to layers/backend/cuda. Invariant: the backend's GPU is the current device of the thread that built it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/backend/backend.h"

namespace convoy {

class ConvolutionPlans;  // conv_plans.h: one built and timed cuDNN graph per shape and direction
class LinearPlans;       // linear_plans.h: one cuBLASLt algorithm per shape and direction

struct CudaState;

/// Pinned host memory in turns: copies may still be reading some pieces while the next is filled.
class PinnedStaging {
 public:
  /// No piece is smaller, so that arrays up to this size never make one grow.
  static constexpr std::size_t kMinBytes = std::size_t{256} << 10;

  /// pieces: copies that may be under way before acquire() waits.
  PinnedStaging(CudaState& state, std::size_t pieces) : state_(state), pieces_(pieces) {}
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  /// At least `bytes` bytes of pinned memory that no copy reads any more; waits for one if need be.
  void* acquire(std::size_t bytes);
  /// The copy from the memory acquired last was put on `stream`.
  void in_use_by(cudaStream_t stream);

 private:
  struct Piece {
    void* data = nullptr;
    std::size_t bytes = 0;
    cudaEvent_t done = nullptr;
  };
  CudaState& state_;
  std::vector<Piece> pieces_;
  std::size_t last_ = 0, next_ = 0;
};

/// The first label of a batch that is no class. A kernel cannot throw: it writes this to the host's memory.
struct BadLabel {
  std::int64_t label, sample, classes;
  std::int32_t seen;
};

struct CudaState {
  CudaState(int device, DType compute, bool tf32, bool deterministic);
  ~CudaState();
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;

  int device;
  DType compute;
  bool tf32;           ///< float32 products may round their inputs to TF32
  bool deterministic;  ///< equal inputs give equal bits: no atomics in floating point, no plan chosen by timing
  int multiprocessors = 0;
  bool time_plans = true;         ///< else the first plan that can be built is taken
  std::string plan_file;          ///< where plans chosen by timing are kept for later processes; empty: nowhere
  cudaStream_t stream = nullptr;  ///< compute
  cudaStream_t copies = nullptr;  ///< host to device
  cudaEvent_t copied = nullptr, computed = nullptr;
  cudnnHandle_t cudnn = nullptr;
  cublasLtHandle_t cublas = nullptr;
  PinnedStaging staging{*this, 32};   ///< small arrays to the device
  PinnedStaging downloads{*this, 1};  ///< to the host, which waits for each
  BadLabel* bad_label = nullptr;      ///< pinned, written by loss kernels; synchronize() throws what it holds
  std::shared_ptr<ConvolutionPlans> convolutions;  // shared: destroyed where the type is not known
  std::shared_ptr<LinearPlans> linears;
  /// Called again and again while the host waits for the stream, with the seconds waited so far; may throw (a
  /// communicator that sees that a partner is gone).
  std::vector<std::function<void(double)>> while_waiting;

  /// Whether the compute stream is being recorded into a graph: then events and streams must not be queried.
  [[nodiscard]] bool capturing() const;
  /// Whether the GPU is past what `event` marks; throws what went wrong before it.
  [[nodiscard]] static bool passed(cudaEvent_t event);
  /// Waits until passed(event), calling while_waiting.
  void wait_for(cudaEvent_t event);
  /// Waits until all work so far is done, calling while_waiting; throws what went wrong with it.
  void synchronize();
};

}  // namespace convoy
