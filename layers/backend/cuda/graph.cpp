// SPDX-License-Identifier: Apache-2.0
//
// Recorded work of the CUDA backend: the compute stream, with all streams that wait for it meanwhile, is captured into
// a CUDA graph, which one launch replays.
#include "layers/backend/cuda/cuda_backend.h"
#include "layers/backend/cuda/cuda_check.h"
#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

namespace {

class RecordedGraph final : public RecordedWork {
 public:
  /// Takes over `temporaries`: pooled memory that every replay writes.
  RecordedGraph(CudaState& state, cudaGraph_t graph, std::unique_ptr<PoolReservation> temporaries)
      : state_(state), temporaries_(std::move(temporaries)) {
    CONVOY_CUDA_CHECK(cudaGraphInstantiateWithFlags(&executable_, graph, 0));
  }
  // A replay that is under way ends first, and what takes its memory then is put on the stream after it.
  ~RecordedGraph() override { cudaGraphExecDestroy(executable_); }
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;

  void replay() override { CONVOY_CUDA_CHECK(cudaGraphLaunch(executable_, state_.stream)); }

 private:
  CudaState& state_;
  std::unique_ptr<PoolReservation> temporaries_;
  cudaGraphExec_t executable_ = nullptr;
};

/// A capture of the compute stream, and of what it takes from the pool; given up unless finished.
class Capture {
 public:
  Capture(CudaState& state, MemoryPool& pool) : state_(state), pool_(pool) {
    // Relaxed: the pool may take memory from the device meanwhile, which waits for no captured work, and communicators'
    // libraries make connections on threads of their own.
    CONVOY_CUDA_CHECK(cudaStreamBeginCapture(state_.stream, cudaStreamCaptureModeRelaxed));
    pool_.begin_reservation();
    open_ = true;
  }
  ~Capture() {
    if (open_) {
      cudaStreamEndCapture(state_.stream, &graph_);
      cudaGetLastError();  // of a capture that the failure had made invalid
      pool_.end_reservation().reset();
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<RecordedWork> finish() {
    open_ = false;
    std::unique_ptr<PoolReservation> temporaries = pool_.end_reservation();
    CONVOY_CUDA_CHECK(cudaStreamEndCapture(state_.stream, &graph_));
    return std::make_unique<RecordedGraph>(state_, graph_, std::move(temporaries));
  }

 private:
  CudaState& state_;
  MemoryPool& pool_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = false;
};

}  // namespace

std::unique_ptr<RecordedWork> CudaBackend::record(const std::function<void()>& body) {
  require_not_recording("record");
  finish_gradients();
  zeros_.reset();  // those of a recording are cleared by it, and are for it alone
  Capture capture(*state_, pool_);
  try {
    body();
    finish_gradients();
  } catch (...) {  // what was captured never happens
    pending_gradients_.clear();
    zeros_.reset();
    throw;
  }
  zeros_.reset();
  return capture.finish();
}

}  // namespace convoy
