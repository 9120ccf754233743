// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda/conv/conv_graph.h"

#include <memory>
#include <utility>
#include <vector>

#include "layers/base/error.h"

namespace convoy {

namespace fe = cudnn_frontend;

namespace {

constexpr std::int64_t kMaxWorkspace = std::int64_t{1} << 30;
enum Uid : std::int64_t {
  kX = 1,
  kW,
  kY,
  kScale,
  kShift,
  kPivot,
  kSums,
  kSquares,
  kResidual,
  kNormInput,
  kMask,
  kMean,
  kInverseStd,
  kDgamma,
  kDbeta
};

fe::DataType_t frontend_type(DType type) {
  switch (type) {
    case DType::kF32: return fe::DataType_t::FLOAT;
    case DType::kBF16: return fe::DataType_t::BFLOAT16;
    case DType::kF16: return fe::DataType_t::HALF;
    default: fail("convolutions in {} are not supported on a GPU", dtype_name(type));
  }
}

fe::NumericalNote_t frontend_note(PlanNote note) {
  switch (note) {
    case PlanNote::kTensorCore: return fe::NumericalNote_t::TENSOR_CORE;
    case PlanNote::kDownConvertInputs: return fe::NumericalNote_t::DOWN_CONVERT_INPUTS;
    case PlanNote::kReducedPrecisionReduction: return fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION;
    case PlanNote::kNondeterministic: break;
  }
  return fe::NumericalNote_t::NONDETERMINISTIC;
}

// Logical [a, b, height, width], in memory [a, height, width, b].
fe::graph::Tensor_attributes channels_last(const char* name, Uid uid, DType type, std::int64_t a, std::int64_t b,
                                           std::int64_t height, std::int64_t width) {
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_data_type(frontend_type(type))
      .set_dim({a, b, height, width})
      .set_stride({height * width * b, 1, width * b, b});
}

void as_output(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor, fe::graph::Tensor_attributes wanted) {
  *tensor = wanted.set_output(true);
}

template <class Attributes>
Attributes window(const ConvPlanKey& key) {
  Attributes attributes;
  const Window2d& w = key.window;
  attributes.set_padding({w.padding.height, w.padding.width})
      .set_stride({w.stride.height, w.stride.width})
      .set_dilation({1, 1});
  return attributes;
}

using GraphTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// The operations around a convolution.
class Around {
 public:
  Around(const ConvPlanKey& key, fe::graph::Graph& graph) : key_(key), graph_(graph) {}

  GraphTensor image(const char* name, Uid uid) {
    return graph_.tensor(channels_last(name, uid, key_.type, key_.batch, key_.in_channels, key_.height, key_.width));
  }
  GraphTensor per_channel(const char* name, Uid uid, DType type, std::int64_t channels) {
    return graph_.tensor(channels_last(name, uid, type, 1, channels, 1, 1));
  }
  GraphTensor apply(fe::PointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b) {
    return graph_.pointwise(a, b, fe::graph::Pointwise_attributes().set_mode(mode));
  }
  GraphTensor affine(const GraphTensor& x, DType type, std::int64_t channels) {
    const GraphTensor scaled = apply(fe::PointwiseMode_t::MUL, x, per_channel("scale", kScale, type, channels));
    return apply(fe::PointwiseMode_t::ADD, scaled, per_channel("shift", kShift, type, channels));
  }
  // The input as the convolution reads it.
  GraphTensor input(DType coefficients) {
    const GraphTensor x = image("x", kX);
    if (!key_.fusion.prologue) return x;
    const GraphTensor positive =
        graph_.pointwise(affine(x, coefficients, key_.in_channels),
                         fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
    positive->set_data_type(frontend_type(key_.type));
    return positive;
  }
  void sum(const GraphTensor& x, const char* name, Uid uid, std::int64_t channels) {
    const auto attributes = fe::graph::Reduction_attributes().set_mode(fe::ReductionMode_t::ADD);
    as_output(graph_.reduction(x, attributes), channels_last(name, uid, DType::kF32, 1, channels, 1, 1));
  }
  void statistics(const GraphTensor& y) {
    const std::int64_t channels = key_.out_channels;
    const GraphTensor distance =
        apply(fe::PointwiseMode_t::SUB, y, per_channel("pivot", kPivot, DType::kF32, channels));
    sum(distance, "sums", kSums, channels);
    sum(apply(fe::PointwiseMode_t::MUL, distance, distance), "squares", kSquares, channels);
  }
  // dx plus the residual, masked, and its sums.
  void input_gradient(GraphTensor dx, const fe::graph::Tensor_attributes& result) {
    const ConvFusion& fusion = key_.fusion;
    const std::int64_t channels = key_.in_channels;
    // The shape of a gradient does not follow from what it is computed of.
    dx->set_dim(result.get_dim()).set_stride(result.get_stride());
    if (fusion.residual) dx = apply(fe::PointwiseMode_t::ADD, dx, image("residual", kResidual));
    GraphTensor x;
    if (fusion.reductions) x = image("norm_input", kNormInput);
    if (fusion.mask == ReluMask::kOutput) dx = apply(fe::PointwiseMode_t::RELU_BWD, dx, image("mask", kMask));
    if (fusion.mask == ReluMask::kRecomputed) {
      dx = apply(fe::PointwiseMode_t::RELU_BWD, dx, affine(x, DType::kF32, channels));
    }
    as_output(dx, result);
    if (!fusion.reductions) return;
    const GraphTensor centred = apply(fe::PointwiseMode_t::SUB, x, per_channel("mean", kMean, DType::kF32, channels));
    const GraphTensor normalised =
        apply(fe::PointwiseMode_t::MUL, centred, per_channel("inverse_std", kInverseStd, DType::kF32, channels));
    sum(dx, "dbeta", kDbeta, channels);
    sum(apply(fe::PointwiseMode_t::MUL, dx, normalised), "dgamma", kDgamma, channels);
  }

 private:
  const ConvPlanKey& key_;
  fe::graph::Graph& graph_;
};

void add_operations(const ConvPlanKey& key, fe::graph::Graph& graph) {
  Around around(key, graph);
  const auto x = channels_last("x", kX, key.type, key.batch, key.in_channels, key.height, key.width);
  // cuDNN takes the number of groups from the input channels of the weight.
  const auto w = channels_last("w", kW, key.type, key.out_channels, key.in_channels / key.groups,
                               key.window.kernel.height, key.window.kernel.width);
  const auto y = channels_last("y", kY, key.type, key.batch, key.out_channels, key.out_height(), key.out_width());
  switch (key.direction) {
    case ConvDirection::kForward: {
      const auto attributes = window<fe::graph::Conv_fprop_attributes>(key);
      const GraphTensor result = graph.conv_fprop(around.input(DType::kF32), graph.tensor(w), attributes);
      as_output(result, y);
      if (key.fusion.statistics) around.statistics(result);
      return;
    }
    case ConvDirection::kBackwardInput: {
      const auto attributes = window<fe::graph::Conv_dgrad_attributes>(key);
      around.input_gradient(graph.conv_dgrad(graph.tensor(y), graph.tensor(w), attributes), x);
      return;
    }
    case ConvDirection::kBackwardWeight: {
      const auto attributes = window<fe::graph::Conv_wgrad_attributes>(key);
      as_output(graph.conv_wgrad(graph.tensor(y), around.input(key.type), attributes), w);
      return;
    }
  }
}

}  // namespace

fe::error_t propose_plans(const ConvPlanKey& key, EngineRules rules, cudnnHandle_t cudnn, fe::graph::Graph& graph) {
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  add_operations(key, graph);
  if (fe::error_t error = graph.validate(); error.is_bad()) return error;
  if (fe::error_t error = graph.build_operation_graph(cudnn); error.is_bad()) return error;
  fe::error_t error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  if (error.is_bad()) return error;
  std::vector<fe::NumericalNote_t> barred;
  for (const PlanNote note : barred_notes(key.type, rules.tf32, rules.deterministic)) {
    barred.push_back(frontend_note(note));
  }
  graph.deselect_numeric_notes(barred).deselect_workspace_greater_than(kMaxWorkspace);
  return error;
}

std::unordered_map<std::int64_t, void*> variant_pack(const ConvBuffers& b) {
  std::unordered_map<std::int64_t, void*> pack{{kX, b.x}, {kW, b.w}, {kY, b.y}};
  const std::pair<Uid, void*> others[] = {{kScale, b.scale},
                                          {kShift, b.shift},
                                          {kPivot, b.pivot},
                                          {kSums, b.sums},
                                          {kSquares, b.squares},
                                          {kResidual, b.residual},
                                          {kNormInput, b.norm_input},
                                          {kMask, b.mask},
                                          {kMean, b.mean},
                                          {kInverseStd, b.inverse_std},
                                          {kDgamma, b.dgamma},
                                          {kDbeta, b.dbeta}};
  for (const auto& [uid, data] : others) {
    if (data != nullptr) pack.emplace(uid, data);
  }
  return pack;
}

}  // namespace convoy
