// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's side of the CPU backend: engine, stream, the weight layouts, and one plan per layer and shape. Private to
// layers/backend/onednn.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <map>
#include <optional>

#include "layers/backend/backend.h"
#include "layers/backend/onednn/cpu_rules.h"
#include "layers/backend/onednn/directions.h"
#include "layers/backend/onednn/dnnl_compat.h"
#include "layers/backend/onednn/weight_copy.h"

namespace convoy {

/// How oneDNN keeps a weight: `native` (float32) in the flat buffers, as the weight-gradient primitive writes it, so
/// that gradients are never converted; `compute` as the forward primitive and `backward` as the input-gradient
/// primitive read it. Where these differ there is a copy, converted once after each update. rotated: `backward` has the
/// window's rows and columns in the opposite order. winograd: where it is not 0, the copies are points of tiles of that
/// side (winograd.h), float32.
class OnednnWeightLayout final : public WeightLayout {
 public:
  OnednnWeightLayout(const Shape& shape, const dnnl::memory::desc& native_md, const dnnl::memory::desc& compute_md,
                     const dnnl::memory::desc& backward_md, bool rotate = false)
      : WeightLayout(shape, static_cast<std::int64_t>(native_md.get_size() / sizeof(float))),
        native(native_md),
        compute(compute_md),
        backward(backward_md),
        rotated(rotate),
        tiles(weight_tiles(native_md, compute_md, backward_md, rotate)) {}
  /// Whether these are of a matrix [out, in]: a linear layer's, or a 1x1 convolution's that is run as one.
  [[nodiscard]] bool of_rows() const { return dnnl_compat::dims_of(native).size() == 2; }
  dnnl::memory::desc native, compute, backward;
  bool rotated;
  std::int64_t winograd = 0;
  std::optional<WeightTiles> tiles;  ///< when both copies are bfloat16 in formats that copy_weight() supports
};

using PlanKey = std::array<std::int64_t, 15>;

struct OnednnState {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<PlanKey, WeightedPlan> plans;
  DType products;  ///< in which products are taken and weights are read; by Winograd in float32
  bool upcasts;    ///< bfloat16 activations are converted for them (upcast.h)
  CpuRules rules;

  OnednnState() : OnednnState(DType::kF32, this_cpu().rules) {}
  /// For activations of this type.
  OnednnState(DType activations, const CpuRules& choices)
      : products(activations == DType::kBF16 && !choices.bf16_products ? DType::kF32 : activations),
        upcasts(products != activations),
        rules(choices) {}
};

/// The oneDNN name of an element type.
dnnl::memory::data_type onednn_type(DType dtype);

/// Memory for the float32 tensor that `md` describes, its padding too.
Tensor tensor_of(Backend& backend, const dnnl::memory::desc& md);

/// Converts between two memory formats of the same logical tensor.
void reorder(OnednnState& state, const dnnl::memory::desc& from_md, void* from, const dnnl::memory::desc& to_md,
             void* to);

/// The same of a weight [O, I, H, W], from `layout`'s compute format to what an input gradient reads: turned by 180
/// degrees where the layout says so.
void reorder_backward(OnednnState& state, const OnednnWeightLayout& layout, void* compute,
                      const dnnl::memory::desc& to_md, void* to);

/// Runs `direction`, an input gradient, with weight.backward, or, at batch sizes for which oneDNN wants another format,
/// with a converted copy.
void run_backward_input(OnednnState& state, Backend& backend, Direction& direction, const Tensor& dy,
                        const Weight& weight, const Tensor& dx);

/// Runs `gradient` and leaves the result in dw (and dbias) in `layout`'s native format: set, or added when
/// `accumulate`.
void run_backward_weight(OnednnState& state, Backend& backend, WeightGradient& gradient, const Tensor& x,
                         const Tensor& dy, const OnednnWeightLayout& layout, const Tensor& dw, const Tensor& dbias,
                         bool accumulate);

/// Whether oneDNN has instructions for products of bfloat16 numbers here (AVX-512 BF16 or AMX).
[[nodiscard]] bool has_bf16();

/// Whether its bfloat16 operations run on matrix units (AMX).
[[nodiscard]] bool has_matrix_units();

}  // namespace convoy
