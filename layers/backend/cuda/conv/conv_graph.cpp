// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/cuda/conv/conv_graph.h"

#include <memory>
#include <vector>

#include "layers/base/error.h"

namespace convoy {

namespace fe = cudnn_frontend;

namespace {

constexpr std::int64_t kMaxWorkspace = std::int64_t{1} << 30;
enum Uid : std::int64_t { kX = 1, kW, kY };

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

void add_operation(const ConvPlanKey& key, fe::graph::Graph& graph) {
  const auto x = channels_last("x", kX, key.type, key.batch, key.in_channels, key.height, key.width);
  // cuDNN takes the number of groups from the input channels of the weight.
  const auto w = channels_last("w", kW, key.type, key.out_channels, key.in_channels / key.groups,
                               key.window.kernel.height, key.window.kernel.width);
  const auto y = channels_last("y", kY, key.type, key.batch, key.out_channels, key.out_height(), key.out_width());
  switch (key.direction) {
    case ConvDirection::kForward: {
      const auto attributes = window<fe::graph::Conv_fprop_attributes>(key);
      as_output(graph.conv_fprop(graph.tensor(x), graph.tensor(w), attributes), y);
      return;
    }
    case ConvDirection::kBackwardInput: {
      const auto attributes = window<fe::graph::Conv_dgrad_attributes>(key);
      as_output(graph.conv_dgrad(graph.tensor(y), graph.tensor(w), attributes), x);
      return;
    }
    case ConvDirection::kBackwardWeight: {
      const auto attributes = window<fe::graph::Conv_wgrad_attributes>(key);
      as_output(graph.conv_wgrad(graph.tensor(y), graph.tensor(x), attributes), w);
      return;
    }
  }
}

}  // namespace

fe::error_t propose_plans(const ConvPlanKey& key, EngineRules rules, cudnnHandle_t cudnn, fe::graph::Graph& graph) {
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  add_operation(key, graph);
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

std::unordered_map<std::int64_t, void*> variant_pack(const ConvBuffers& buffers) {
  return {{kX, buffers.x}, {kW, buffers.w}, {kY, buffers.y}};
}

}  // namespace convoy
