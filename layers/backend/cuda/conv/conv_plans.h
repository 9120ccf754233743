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

/// Of the input, the weight and the output, or of their gradients: ConvPlanKey::direction says which one is written.
struct ConvBuffers {
  void *x, *w, *y;
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

 private:
  struct Plan;
  Plan& plan_for(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers);

  PlanFile file_;
  std::map<ConvPlanKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace convoy
