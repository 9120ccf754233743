// SPDX-License-Identifier: Apache-2.0
//
// Large arrays on their way from the host to the GPU: piece by piece through pinned memory to a buffer on the GPU, on
// the copy stream, and from there to their place when the compute stream gets to it. So an upload runs beside the
// compute before it, and never overwrites what that still reads. Private to layers/backend/cuda.
// Invariant: the host waits only when it is more than all pieces ahead of the GPU.
#pragma once

#include <cstddef>

#include "layers/backend/cuda/cuda_state.h"

namespace convoy {

class Uploads {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
  static constexpr std::size_t kPieces = 16;  // the images of a step, so that the next step's need not wait

  /// Takes the buffers out of `backend`'s pool; both outlive this.
  Uploads(CudaState& state, Backend& backend);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  /// `source` may be changed when this returns; `destination` is set in the order of the compute stream.
  void copy(const std::byte* source, std::size_t bytes, std::byte* destination);

 private:
  CudaState& state_;
  PinnedStaging pinned_;
  Tensor buffers_;                  // uint8 [kPieces, kPieceBytes]
  cudaEvent_t read_[kPieces] = {};  // the compute stream is done with the buffer
  std::size_t next_ = 0;
};

}  // namespace convoy
