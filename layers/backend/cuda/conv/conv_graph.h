// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's graph of one convolution and of what is fused with it, channels-last by strides, sums in float32. Needs no
// GPU where the graph has the description of one. Private to layers/backend/cuda.
#pragma once

#include <cudnn_frontend.h>

#include <cstdint>
#include <unordered_map>

#include "layers/backend/cuda/conv/conv_plans.h"
#include "layers/backend/cuda/conv/plan_choice.h"

namespace convoy {

/// Which of cuDNN's engines are used; see barred_notes().
struct EngineRules {
  bool tf32 = false, deterministic = false;
};

/// Makes `graph` the convolution of `key` and asks cuDNN's heuristics which plans it has, best first. Those that
/// `rules` exclude, and those that want more than 1 GiB of workspace, cannot be built. cudnn may be null when the graph
/// has the description of a device (cudnn_frontend::graph::Graph::set_device_properties).
[[nodiscard]] cudnn_frontend::error_t propose_plans(const ConvPlanKey& key, EngineRules rules, cudnnHandle_t cudnn,
                                                    cudnn_frontend::graph::Graph& graph);

/// What a plan of the graph reads and writes, by the identifiers of its tensors.
[[nodiscard]] std::unordered_map<std::int64_t, void*> variant_pack(const ConvBuffers& buffers);

}  // namespace convoy
