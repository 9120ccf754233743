// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's plans for convolutions, one per shape and direction: made on first use, where the quickest of what cuDNN's
// heuristics propose is found on the caller's buffers, and kept, also in a file for later processes. Private to
// layers/backend/cuda.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "layers/backend/backend.h"
#include "layers/backend/cuda/conv/plan_choice.h"
#include "layers/backend/cuda/cuda_state.h"
#include "layers/backend/cuda/plan_file.h"

namespace convoy {

/// What a plan reads and writes: ConvPlanKey::direction says which of the first three is written. The others are those
/// of its fusion, else null; float32 [channels] unless it says otherwise.
struct ConvBuffers {
  void *x, *w, *y;  ///< input, weight and output, or their gradients
  /// Of a prologue: float32, or in the compute type for a weight gradient.
  void *scale = nullptr, *shift = nullptr;
  void *pivot = nullptr, *sums = nullptr, *squares = nullptr;  ///< statistics, added to the last two
  void* residual = nullptr;                                    ///< of the type and shape of x, as the next two
  void *norm_input = nullptr, *mask = nullptr;
  void *mean = nullptr, *inverse_std = nullptr;  ///< reductions; scale and shift for a mask that is computed again
  void *dgamma = nullptr, *dbeta = nullptr;      ///< added to
};

class ConvolutionPlans {
 public:
  /// file: where the quickest plans are kept for later processes (plan_file.h); empty: nowhere.
  explicit ConvolutionPlans(std::string file);
  ~ConvolutionPlans();

  /// Puts the convolution on the compute stream; w is [out_channels, kernel height, kernel width, in_channels /
  /// groups], all are aligned to 16 bytes. Throws when cuDNN cannot do it, or when work is being recorded and there is
  /// no plan yet.
  void run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers);
  /// The same where cuDNN has a plan; else false, and nothing is done.
  bool try_run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers);

 private:
  struct Plan;
  Plan& plan_for(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers);

  PlanFile file_;
  std::map<ConvPlanKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace convoy
